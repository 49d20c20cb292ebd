package ui

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// readyLimit is how soon the database must answer for the server to count as ready.
const readyLimit = 2 * time.Second

// healthz says that the process is up. It does not ask the database: restarting this process would not mend that.
func healthz(w http.ResponseWriter, _ *http.Request) { answerPlainly(w, http.StatusOK, "ok\n") }

// readyz says whether the database answers.
func readyz(pool *pgxpool.Pool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyLimit)
		defer cancel()
		if _, err := pool.Exec(ctx, "select 1"); err != nil {
			answerPlainly(w, http.StatusServiceUnavailable, "the database does not answer\n")
			return
		}
		answerPlainly(w, http.StatusOK, "ok\n")
	})
}

func answerPlainly(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a client that left needs no answer
}
