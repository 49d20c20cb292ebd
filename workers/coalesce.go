package workers

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/coalesce"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

const (
	// maxBatch bounds one statement: what waits behind it waits for all of it.
	maxBatch = 500
	// flushers is how many batches of one sort are under way at once, at most. More hold more connections.
	flushers = 2
	// patience is for how long one batch of a sort goes alone. Measured: a statement costs as much as 20 of its elements,
	// and two flushers that share what waits halve the batches.
	patience = 20 * time.Millisecond
	// linger lets the batches of a busy process grow. Measured: 1 ms.
	linger = time.Millisecond
)

// writesOf are the writes of one kind's runs that are carried out together when they come at the same time: claims, ends
// that succeed, and the receipts of outside steps.
type writesOf struct {
	claims   *coalesce.Group[uuid.UUID, fencing.ClaimRequest, *fencing.Claimed] // nil: it matched no row
	succeeds *coalesce.Group[uuid.UUID, receipts.End, receipts.Ended]
	starts   *coalesce.Group[uuid.UUID, receipts.Outside, receipts.Stood]
	asks     *coalesce.Group[uuid.UUID, receipts.Outside, receipts.Stood] // starts of Reconciled steps
	settles  *coalesce.Group[uuid.UUID, receipts.Settlement, receipts.Stood]
	// statements are whole steps of one statement.
	statements *coalesce.Group[uuid.UUID, statementCall, json.RawMessage]
}

// writeTimeout bounds one write of an owner: below the lease, since a fence must not wait for longer than what it proves.
func writeTimeout(lease time.Duration) time.Duration { return min(lease/2, 10*time.Second) }

func (s *Service) newWrites(k *workKind) *writesOf {
	w := &writesOf{statements: s.newStatements(k.lease)}
	timeout := writeTimeout(k.lease)
	w.claims = group(s, maxBatch, k.lease/2, func(r fencing.ClaimRequest) uuid.UUID { return r.Run },
		func(ctx context.Context, conn *pgxpool.Conn, r fencing.ClaimRequest) (*fencing.Claimed, error) {
			claim := receipts.Claim
			if k.start != nil {
				claim = receipts.ClaimStarted
			}
			c, ok, err := claim(ctx, conn, r)
			if err != nil || !ok {
				return nil, err
			}
			return &c, nil
		},
		func(ctx context.Context, conn *pgxpool.Conn, list []fencing.ClaimRequest) (map[uuid.UUID]*fencing.Claimed, error) {
			return receipts.ClaimMany(ctx, conn, list, k.start != nil)
		})
	w.succeeds = group(s, maxBatch, timeout, func(e receipts.End) uuid.UUID { return e.Run },
		func(ctx context.Context, conn *pgxpool.Conn, e receipts.End) (receipts.Ended, error) {
			return e.Write(ctx, conn)
		},
		func(ctx context.Context, conn *pgxpool.Conn, list []receipts.End) (map[uuid.UUID]receipts.Ended, error) {
			return receipts.SucceedMany(ctx, conn, list)
		})
	start := func() *coalesce.Group[uuid.UUID, receipts.Outside, receipts.Stood] {
		return group(s, maxBatch, timeout, func(o receipts.Outside) uuid.UUID { return o.Run },
			func(ctx context.Context, conn *pgxpool.Conn, o receipts.Outside) (stood receipts.Stood, err error) {
				stood.Written, stood.CancelRequested, err = o.Start(ctx, conn)
				return stood, err
			},
			func(ctx context.Context, conn *pgxpool.Conn, list []receipts.Outside) (map[uuid.UUID]receipts.Stood, error) {
				return receipts.StartMany(ctx, conn, list)
			})
	}
	w.starts, w.asks = start(), start()
	w.settles = group(s, maxBatch, timeout, func(o receipts.Settlement) uuid.UUID { return o.Run },
		func(ctx context.Context, conn *pgxpool.Conn, o receipts.Settlement) (stood receipts.Stood, err error) {
			stood.CancelRequested, err = o.Settle(ctx, conn, o.Output, o.ExternalRef)
			return stood, err
		},
		func(ctx context.Context, conn *pgxpool.Conn, list []receipts.Settlement) (map[uuid.UUID]receipts.Stood, error) {
			return receipts.SettleMany(ctx, conn, list)
		})
	return w
}

// group makes the group of one sort of write, each on a connection of the pool.
func group[K comparable, In, Out any](s *Service, limit int, timeout time.Duration, key func(In) K,
	one func(context.Context, *pgxpool.Conn, In) (Out, error),
	many func(context.Context, *pgxpool.Conn, []In) (map[K]Out, error),
) *coalesce.Group[K, In, Out] {
	return coalesce.New(coalesce.Config[K, In, Out]{
		Key: key, Max: limit, Flushers: flushers, Patience: patience, Timeout: timeout, Linger: linger, InDoubt: inDoubt,
		One: func(ctx context.Context, in In) (out Out, err error) {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			conn, err := s.acquire(ctx)
			if err != nil {
				return out, err
			}
			defer conn.Release()
			return one(ctx, conn, in)
		},
		Many: func(ctx context.Context, in []In) (map[K]Out, error) {
			conn, err := s.acquire(ctx)
			if err != nil {
				return nil, err
			}
			defer conn.Release()
			return many(ctx, conn, in)
		},
	})
}
