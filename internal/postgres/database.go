package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// CreateDatabase makes an empty database. One of that name that is there already is an error that wraps PostgreSQL's
// 42P04.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	return s.admin(ctx, "create database "+quote(name))
}

// CopyDatabase makes a database that is a copy of another one, to which nobody may be connected.
func (s *Server) CopyDatabase(ctx context.Context, name, template string) error {
	sql := "create database " + quote(name) + " template " + quote(template)
	if s.Major() >= 15 {
		// 15 copies through the log by default, which is slower for a template of this size.
		sql += " strategy file_copy"
	}
	return s.admin(ctx, sql)
}

// DropDatabase removes a database and cuts off who is still connected to it. One that is not there is no error.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	return s.admin(ctx, "drop database if exists "+quote(name)+" with (force)")
}

func (s *Server) admin(ctx context.Context, sql string) (err error) {
	conn, err := pgconn.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	if _, err := conn.Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
