package main

import "time"

// all are the contests, in the order of a round.
func all() []contest {
	return []contest{
		{name: "river", ops: 80_000, prepare: riverNoop},
		{name: "delivery", ops: 40_000, prepare: delivery(0, notify)},
		{name: "delivery 5 ms", ops: 40_000, prepare: delivery(5*time.Millisecond, notify)},
		{name: "bulk", ops: 80_000, prepare: delivery(0, notifyMany)},
		{name: "bulk 5 ms", ops: 80_000, prepare: delivery(5*time.Millisecond, notifyMany)},
		{name: "dbos queue", ops: 6_000, prepare: dbosQueue},
		{name: "floor pipelined", ops: 32_000, prepare: floorPipelined, wire: &perOp{trips: 1, statements: 5}},
		{name: "statement step", ops: 16_000, prepare: transactionalSteps("bench_statement", statementStep)},
		{name: "live step", ops: 14_000, prepare: transactionalSteps("bench_live", liveStep)},
		{name: "river resumable", ops: 10_000, prepare: riverResumable},
		{name: "dbos transaction", ops: 8_000, prepare: dbosTransactions},
	}
}
