package desk_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/desk"
)

// A save names the version that it was made from, and is refused when another one is stored.
func ExampleStore_Save() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := desk.NewStore(pool)
	if err != nil {
		log.Fatal(err)
	}
	empty, err := desk.EmptyContent(desk.TypeSpreadsheet)
	if err != nil {
		log.Fatal(err)
	}
	file, err := store.Create(ctx, "ada", desk.NewFile{Name: "Budget", Content: empty})
	if err != nil {
		log.Fatal(err)
	}
	content, err := desk.ParseContent([]byte(`{"cells": {"A1": {"v": "Rent"}, "B1": {"v": 1200.50}}}`))
	if err != nil {
		log.Fatal(err)
	}
	saved, err := store.Save(ctx, "ada", desk.Save{
		File: file.ID, ID: desk.NewSaveID(), Writer: "tab-1",
		ExpectedVersion: file.Version, ExpectedRev: file.Rev, SchemaVersion: desk.SchemaVersion, Content: content,
	})
	if conflict := (*desk.ConflictError)(nil); errors.As(err, &conflict) {
		log.Fatalf("version %d was saved by %s meanwhile", conflict.Current.Version, conflict.Current.Rev)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(saved.CurrentVersion)
}

// A tool changes a document and records that it did so in one transaction.
func ExampleStore_SaveTx() {
	carryOut := func(ctx context.Context, pool *pgxpool.Pool, store *desk.Store, save desk.Save) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			saved, err := store.SaveTx(ctx, tx, "ada", save)
			if err != nil || saved.Replayed {
				return err
			}
			_, err = tx.Exec(ctx, "insert into done (save_id) values ($1)", save.ID)
			return err
		})
	}
	_ = carryOut
}

// The API stands in a mux of one's own, behind one's own authentication.
func ExampleNewHandler() {
	serve := func(store *desk.Store, userOf func(*http.Request) (string, error)) error {
		handler, err := desk.NewHandler(desk.HandlerConfig{
			Store: store,
			Identify: func(r *http.Request) (desk.Owner, error) {
				name, err := userOf(r) // desk.ErrForbidden is answered with 403, any other error with 401
				return desk.Owner(name), err
			},
		})
		if err != nil {
			return err
		}
		defer handler.Close()
		mux := http.NewServeMux()
		mux.Handle(desk.Prefix, http.NewCrossOriginProtection().Handler(handler))
		return http.ListenAndServe("127.0.0.1:8080", mux)
	}
	_ = serve
}
