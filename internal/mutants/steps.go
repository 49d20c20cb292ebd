package main

const (
	stepsGo       = "workers/steps.go"
	stepOutsideGo = "workers/stepoutside.go"
	stepOutputGo  = "workers/stepoutput.go"
	stepStmtGo    = "internal/receipts/statement.go"
)

var stepMutants = []mutant{
	{"steps: a statement's fence is locked first", one(stepStmtGo, `event, afterUserRows, "weir_user_rows`, `event, ownRun, "weir_user_rows`), receiptsPkg, "StatementStep_Waits"},
	{"steps: the server does not bound a statement", one(stepStmtGo, "set_config('statement_timeout', $1, true)", "set_config('weir.unbounded', $1, true)"), receiptsPkg, "StatementStep_IsEnded"},
	{"steps: a statement waits for a row for ever", one(stepStmtGo, "set_config('lock_timeout', $2, true)", "set_config('weir.unbounded', $2, true)"), receiptsPkg, "StatementStep_IsEnded"},
	{"steps: parameters are not counted", one(stepStmtGo, "c.highest > len(f.Args)", "false"), receiptsPkg, "StatementStep_Parameters"},
	{"steps: a shutdown waits for the whole run", one(stepsGo, "if t.service.stopping.Load() {", "if false && t.service.stopping.Load() {"), workersPkg, "Steps_AShutdown"},
	{"steps: contention burns budget", one(stepsGo, "case s.Effect == receipts.Transactional && fencing.IsTransient(err):", "case false:"), workersPkg, "Steps_WhatBurns"},
	{"steps: issued under another's started", one(stepOutsideGo, "if began {", "if began || s.impl.ask != nil {"), workersPkg, "Steps_ReconciledIsAsked"},
	{"steps: a lost try says nothing of its step", one(stepsGo, "if s.Effect != receipts.Transactional {\n		res.outcome", "if false {\n		res.outcome"), workersPkg, "TestLost_"},
	{"channels: a context that never ends", one("workers/delivery.go", "ch.Send(ctx, m)", "ch.Send(context.WithoutCancel(ctx), m)"), "./workers/workerstest", "Idempotent/step_0/silent"},
	{"steps: a refused first statement is forgotten", one("workers/stepbegin.go", "t.aborted = true", "t.aborted = false"), workersPkg, "StepBegin_ARefused"},
	{"steps: what is sent by Conn is not in the transaction", one("workers/stepseen.go", "if _, err := t.begun(t.live.stepCtx); err != nil {\n		closeSoon", "if false {\n		closeSoon"), workersPkg, "StepBegin_WhateverComesFirst"},
	{"steps: a connection that is gone is the step's", one("workers/steplive.go", "if tx.refused != nil {", "if false && tx.refused != nil {"), workersPkg, "StepBegin_AConnection"},
	{"steps: names in the simple protocol", one("workers/steptx.go", "name = execute(name, len(args))", "_ = execute"), workersPkg, "StepBegin_WhateverComesFirst"},
	{"steps: an escaped NUL passes", one(stepOutputGo, "case code == 0:", "case code == -2:"), workersPkg, "Output_IsStorable"},
}

func init() { mutants = append(mutants, stepMutants...) }
