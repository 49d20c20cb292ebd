package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// provider is a payment provider in this process.
type provider struct {
	*httptest.Server
	mu       sync.Mutex
	payments map[string]string
	cents    int
}

func startProvider() *provider {
	p := &provider{payments: map[string]string{}}
	p.Server = httptest.NewServer(http.HandlerFunc(p.charge))
	return p
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

func (p *provider) charged(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.payments[key] != ""
}

// Mails is a mail server in this process.
type Mails struct {
	mu   sync.Mutex
	sent map[string]int
}

// Send accepts a mail.
func (m *Mails) Send(to, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sent == nil {
		m.sent = map[string]int{}
	}
	m.sent[to+": "+text]++
}

func (m *Mails) to(address string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for mail, count := range m.sent {
		if strings.HasPrefix(mail, address+": ") {
			n += count
		}
	}
	return n
}
