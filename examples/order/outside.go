package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/weirqueue/weir/workers"
)

// Payments is a client of a payment provider that honours idempotency keys.
type Payments struct{ URL string }

// Charge takes the money once for each key.
func (p *Payments) Charge(ctx context.Context, key string, cents int) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/charges", strings.NewReader(strconv.Itoa(cents)))
	if err != nil {
		return "", workers.NotSent(err)
	}
	req.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err // it may have arrived: the same key is sent again
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusPaymentRequired {
		return "", workers.Refuse("card_declined", fmt.Errorf("the provider said %s", res.Status))
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the provider said %s", res.Status)
	}
	var answer struct{ Payment string }
	err = json.NewDecoder(res.Body).Decode(&answer)
	return answer.Payment, err
}

// Mails is a client of a mail service.
type Mails struct{ URL string }

// Send hands a mail over.
func (m *Mails) Send(ctx context.Context, to, text string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL+"/mails/"+url.PathEscape(to), strings.NewReader(text))
	if err != nil {
		return workers.NotSent(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err // it may have been taken: a second mail is bearable
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the mail service said %s", res.Status)
	}
	return nil
}

// provider is all that is outside, in this process: it takes payments and mails.
type provider struct {
	*httptest.Server
	mu       sync.Mutex
	payments map[string]string
	cents    int
	mails    map[string]int
}

func startProvider() *provider {
	p := &provider{payments: map[string]string{}, mails: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", p.charge)
	mux.HandleFunc("POST /mails/{to}", p.mail)
	p.Server = httptest.NewServer(mux)
	return p
}

func (p *provider) outside() Outside { return outsideAt(p.URL) }

func outsideAt(url string) Outside {
	return Outside{Payments: &Payments{URL: url}, Mails: &Mails{URL: url}}
}

func (p *provider) charge(w http.ResponseWriter, r *http.Request) {
	var cents int
	if _, err := fmt.Fscan(r.Body, &cents); err != nil || cents <= 0 {
		w.WriteHeader(http.StatusPaymentRequired)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if p.payments[key] == "" {
		p.payments[key] = fmt.Sprintf("pay_%d", len(p.payments)+1)
		p.cents += cents
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"payment": p.payments[key]}) // a client that left asks again
}

func (p *provider) mail(_ http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mails[r.PathValue("to")]++
}

func (p *provider) charged(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.payments[key] != ""
}

func (p *provider) mailsTo(address string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mails[address]
}
