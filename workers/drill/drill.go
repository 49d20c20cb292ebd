// Package drill lets a program prove its own kinds under real faults. The program gets a subcommand that starts itself
// again as several worker processes, on a private PostgreSQL or on DATABASE_URL, puts the kinds under load, kills, stops
// and cuts off the workers, and then checks the records of every run: nothing lost, no write by an owner that was
// replaced, no receipt changed, attempts rising. What a kind's effects should be, its Check says.
//
//	func main() {
//		if len(os.Args) > 1 && os.Args[1] == "drill" {
//			err := drill.Main(ctx, os.Args[1:], drill.Of(drill.Config[Order]{Kind: OrderKind, …}))
//			…
//		}
//		…
//	}
//
// The subcommand's flags are those of `worker drill`. It needs Linux or another Unix, and PostgreSQL's programs where no
// DATABASE_URL is set. docs/drill.md says what is done and what is checked.
package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	inner "github.com/weirqueue/weir/internal/drill"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// Env is what the parent process tells its workers, beside the database's address.
type Env map[string]string

// Config says how a kind is drilled. Kind, Bind and Payload are required.
type Config[T any] struct {
	Kind *jobs.Kind[T]
	// Bind makes the binding of one worker process with the configuration that it is given. env is what Outside returned.
	Bind func(cfg workers.KindConfig, env Env) (workers.Binding, error)
	// Payload makes the payload of the n-th run, from 1.
	Payload func(n int64) T
	// Outside is called once, in the parent process, before any worker starts: it makes tables in the database and starts
	// what stands for the outside, which must outlive the workers. close is called at the end; it may be nil.
	Outside func(ctx context.Context, pool *pgxpool.Pool) (env Env, close func() error, err error)
	// Check is called in the parent process for each run, when all have ended. It returns an error when the run's effects
	// are not as they should be. A run that failed, as with outcome_unknown, is for Check to judge, too: see ended.Run.
	Check func(ctx context.Context, pool *pgxpool.Pool, ended Ended[T]) error
}

// Ended is a run at the end of a drill.
type Ended[T any] struct {
	Run     *jobs.Run
	Payload T
	// Done are the steps, by name, whose receipts are ok.
	Done map[string]bool
	// Unknown counts by step name how often an outcome became unknown. The effect of an AtLeastOnce step may be there that
	// many times more; that of every other step at most once.
	Unknown map[string]int
}

// Subject is a kind that Main drills; see Of.
type Subject interface {
	subject() inner.Subject
}

// Of makes a kind a subject.
func Of[T any](cfg Config[T]) Subject { return &kind[T]{cfg: cfg} }

// Main is the subcommand: args begin with the word that calls it, then come flags. It returns nil when every promise was
// kept, and an error when one was broken, when too few faults landed, or when ctx ended. It also is each of the worker
// processes: a program must not do anything before it that a worker should not.
func Main(ctx context.Context, args []string, subjects ...Subject) error {
	if len(args) == 0 {
		return errors.New("drill: args must begin with the name of the subcommand")
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("drill: %w", err)
	}
	command := inner.Command{Program: filepath.Base(program) + " " + args[0], Args: args[:1]}
	command.Subjects = func(uint64) []inner.Subject {
		var list []inner.Subject
		for _, s := range subjects {
			list = append(list, s.subject())
		}
		return list
	}
	parser, err := kong.New(&command, kong.Name(command.Program), inner.Vars())
	if err != nil {
		return fmt.Errorf("drill: %w", err)
	}
	if _, err := parser.Parse(args[1:]); err != nil {
		return fmt.Errorf("drill: %w", err)
	}
	return command.Run(ctx)
}

// kind is a subject of the application's own.
type kind[T any] struct {
	cfg   Config[T]
	close func() error
}

func (k *kind[T]) subject() inner.Subject { return k }
func (k *kind[T]) Name() string           { return k.cfg.Kind.Name() }
func (k *kind[T]) Kind() string           { return k.cfg.Kind.Name() }

func (k *kind[T]) Setup(ctx context.Context, pool *pgxpool.Pool) (map[string]string, error) {
	if k.cfg.Outside == nil {
		return nil, nil
	}
	env, end, err := k.cfg.Outside(ctx, pool)
	k.close = end
	return env, err
}

func (k *kind[T]) Close() error {
	if k.close == nil {
		return nil
	}
	return k.close()
}

func (k *kind[T]) Enqueue(ctx context.Context, tx pgx.Tx, client *jobs.Client, n int64) (jobs.RunID, error) {
	// The budget is not what is drilled.
	res, err := client.EnqueueTx(ctx, tx, k.cfg.Kind.Of(k.cfg.Payload(n)), &jobs.Opts{MaxAttempts: jobs.MaxFailuresLimit})
	if err != nil {
		return jobs.RunID{}, err
	}
	return res.Run.ID, nil
}

func (k *kind[T]) Work(cfg *workers.Config, env map[string]string, limits inner.Limits) error {
	b, err := k.cfg.Bind(workers.KindConfig{
		MaxWorkers: limits.MaxWorkers, Lease: limits.Lease, StepTime: limits.StepTime, Backoff: limits.Backoff,
	}, env)
	cfg.Kinds = append(cfg.Kinds, b)
	return err
}

// Check calls the application's for each run.
func (k *kind[T]) Check(ctx context.Context, pool *pgxpool.Pool, records *inner.Records) (inner.Effects, error) {
	var all inner.Effects
	client, err := jobs.NewClient(pool, nil)
	if err != nil {
		return all, err
	}
	steps := k.cfg.Kind.Steps()
	for _, r := range records.Runs(k.Kind()) {
		run, err := client.Get(ctx, r.ID)
		if errors.Is(err, jobs.ErrNotFound) {
			continue // it is lost, and reported as that
		}
		if err != nil {
			return all, err
		}
		e := Ended[T]{Run: run, Payload: k.cfg.Payload(r.N), Done: map[string]bool{}, Unknown: map[string]int{}}
		for i, s := range steps {
			if e.Unknown[s.Name] = r.Unknown[i]; r.Receipts[i] == "ok" {
				e.Done[s.Name] = true
				all.Count++
			}
		}
		if k.cfg.Check == nil {
			continue
		}
		if err := k.cfg.Check(ctx, pool, e); err != nil {
			all.Wrong++
			all.Faults = append(all.Faults, fmt.Sprintf("%s run %s: Check: %v", r.Kind, r.ID, err))
		}
	}
	return all, nil
}
