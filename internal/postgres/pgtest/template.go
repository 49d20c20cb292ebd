package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/migrations"
)

const (
	templatePrefix = "template_"
	// templateAge is how long a template that nobody asks for is kept. Other checkouts may have other migrations.
	templateAge = 24 * time.Hour
)

// migratedTemplate is the database that migrated databases are copies of, made by the first process that needs it.
//
// Its name has the migrations' fingerprint, so that a change of them makes a new one. It takes its name only when it is
// whole, and from then on takes no connections, which would keep it from being copied.
func (p *process) migratedTemplate(ctx context.Context) (string, error) {
	p.templateMu.Lock()
	defer p.templateMu.Unlock()
	if p.template != "" {
		return p.template, nil
	}
	name := templatePrefix + migrations.Fingerprint()[:16]
	err := p.exclusively(ctx, func() error {
		existing, err := p.databases(ctx, templatePrefix)
		if err != nil {
			return err
		}
		if !slices.Contains(existing, name) {
			if err := makeTemplate(ctx, p.server, name); err != nil {
				return err
			}
		}
		return p.dropOldTemplates(ctx, name, existing)
	})
	if err != nil {
		return "", err
	}
	p.template = name
	return name, nil
}

func (p *process) forgetTemplate(name string) {
	p.templateMu.Lock()
	defer p.templateMu.Unlock()
	if p.template == name {
		p.template = ""
	}
}

func makeTemplate(ctx context.Context, server *postgres.Server, name string) error {
	unfinished := "unfinished_" + name
	// One that a killed process left.
	if err := server.DropDatabase(ctx, unfinished); err != nil {
		return err
	}
	if err := server.CreateDatabase(ctx, unfinished); err != nil {
		return err
	}
	if err := migrations.Up(ctx, server.URL(unfinished), migrations.Options{}); err != nil {
		return errors.Join(err, server.DropDatabase(ctx, unfinished))
	}
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	from, to := pgx.Identifier{unfinished}.Sanitize(), pgx.Identifier{name}.Sanitize()
	_, err = conn.Exec(ctx, "alter database "+from+" with allow_connections false")
	if err == nil {
		_, err = conn.Exec(ctx, "alter database "+from+" rename to "+to)
	}
	return errors.Join(err, conn.Close(ctx))
}

// dropOldTemplates keeps the time of a template's last use as that of a file.
func (p *process) dropOldTemplates(ctx context.Context, current string, existing []string) error {
	used := filepath.Join(p.server.Dir(), "templates")
	if err := os.MkdirAll(used, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(used, current), nil, 0o600); err != nil {
		return err
	}
	for _, name := range existing {
		info, err := os.Stat(filepath.Join(used, name))
		if name == current || (err == nil && time.Since(info.ModTime()) < templateAge) {
			continue
		}
		if err := p.server.DropDatabase(ctx, name); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(used, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
