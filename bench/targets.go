package main

// target is one figure of the report, with what we ask of it. The gate is what a run must reach, the goal what we are
// after. Zero is none.
type target struct {
	key        string
	of, over   string // the contests that it is the ratio of; empty: it is measured in another way
	gate, goal float64
	// less says that less is better.
	less bool
}

// met says whether value reaches limit.
func (t target) met(value, limit float64) bool {
	if t.less {
		return value <= limit
	}
	return value >= limit
}

// targets are in the order of the report.
var targets = []target{
	{key: "delivery_vs_river", of: "delivery", over: "river", gate: 0.40, goal: 0.60},
	{key: "bulk_vs_river", of: "bulk", over: "river", gate: 1.20, goal: 2.0},
	{key: "delivery_vs_dbos", of: "delivery", over: "dbos queue", gate: 6, goal: 10},
	{key: "live_step_vs_dbos", of: "live step", over: "dbos transaction", gate: 1.5, goal: 2.0},
	{key: "statement_step_vs_dbos", of: "statement step", over: "dbos transaction", gate: 2.0, goal: 2.5},
	{key: "statement_step_vs_river_resumable", of: "statement step", over: "river resumable", gate: 1.5, goal: 2.0},
	{key: "statement_step_vs_floor", of: "statement step", over: "floor pipelined", gate: 0.42, goal: 0.60},
	{key: "heartbeat_statements_per_tick", gate: 2, goal: 2, less: true},
	{key: "heartbeat_ms_10k", gate: 150, goal: 80, less: true},
	{key: "hot_share", gate: 0.90, goal: 0.99},
	{key: "latency_p50_ms_over_river", gate: 1, goal: 0, less: true},
	{key: "latency_p99_ms_over_river", gate: 5, goal: 0, less: true},
	{key: "growth", gate: 0.80, goal: 0.95},
	{key: "memory_mb", gate: 150, goal: 80, less: true},
	// Asked for without a goal of their own, or for the reader.
	{key: "cleaning", gate: 0.95, goal: 0.95},
	{key: "long_transaction"},
	{key: "small_buffers"},
}
