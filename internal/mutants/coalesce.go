package main

const (
	batchGo       = "internal/fencing/batch.go"
	batchWritesGo = "internal/receipts/batch.go"
	stepGroupGo   = "internal/receipts/stepgroup.go"
	coalesceGo    = "internal/coalesce/coalesce.go"
	coalescePkg   = "./internal/coalesce"
)

// An element of a coalesced write that nobody fences.
var unfencedElement = one(batchGo, `fromBatch(m.selection(e, scope), "b", columns)`, `strings.Replace(fromBatch(m.selection(e, scope), "b", columns), "r.attempt = b.b_attempt::bigint", "true", 1)`)

var coalesceMutants = []mutant{
	{"batch: an element without its fence", unfencedElement, receiptsPkg, "SucceedMany_AStale"},
	{"batch: small ones are planned anew", one(batchGo, "(select @%s_list::%s[])", "@%s_list::%s[]"), receiptsPkg, "TestBatch_SmallOnes"},
	{"batch: waits for locked rows", one(batchGo, "for no key update of r skip locked) l", "for no key update of r) l"), receiptsPkg, "ClaimMany_Each|SucceedMany_AStale"},
	{"batch: ok is overwritten", one(batchWritesGo, "output = excluded.output, recorded_at = clock_timestamp()\n        where receipt.outcome <> 'ok'", "output = excluded.output, recorded_at = clock_timestamp()"), receiptsPkg, "Many"},
	{"keeper: what is held while all ends goes on", one("internal/fencing/keeper.go", "	if over != nil {\n", "	if over != nil && attempt < 0 {\n"), fencingPkg, "Keeper_EndAll"},
	{"keeper: the stopwatch rings once", one("internal/fencing/held.go", "		h.alarm.Reset(left)\n", ""), fencingPkg, "TestHeld_"},
	{"keeper: a wake-up is the step's fault", one("internal/fencing/held.go", "	case h.deadline.Before(h.lasts):\n", "	case time.Until(h.deadline) <= 0:\n"), fencingPkg, "TestHeld_"},
	{"send: who does not begin undoes a doubt", one("workers/work.go", "if mayHaveHappened(boundStep{Step: res.step}, before, res) {", "if before.Outcome == receipts.OK {"), workersPkg, "TestDelivery_ATry"},
	{"send: erasure leaves the reference", one("internal/fencing/erase.go", "external_ref = null, ", ""), "./jobs", "TestErase_References"},
	{"send: whoever sends is its own receipt", one(endGo, "e.Step == Send && e.Attempt == 1 &&", "e.Step == Send &&"), receiptsPkg, "TestSend_"},
	{"send: an effect that nobody sees", one(endGo, "e.Step == Send && e.Attempt == 1 &&", "e.Step.Index == Send.Index && e.Attempt == 1 &&"), receiptsPkg, "TestSend_AnotherEffect"},
	{"send: a first owner that vanished leaves nothing", one(receiptGo, "where id = any(@runs::text[]::uuid[]) and kind = '", "where false and id = any(@runs::text[]::uuid[]) and kind = '"), receiptsPkg, "TestSend_"},
	{"send: what never began is unknown", one(receiptGo, "and not '`+ManySteps+`' = any(needs)", ""), receiptsPkg, "TestSend_AnotherEffect"},
	{"send: cancel looks at rows only", one(receiptGo, "select exists (select from weir.receipts where", "select exists (select from weir.receipt where"), receiptsPkg, "TestSend_CancelWaits"},
	{"send: a later try is started by its run alone", one("internal/receipts/claim.go", "where fenced.attempt > 1 and not", "where fenced.attempt > 3 and not"), receiptsPkg, "TestSend_WhatGoes"},
	{"coalesce: one key twice in a batch", one(coalesceGo, "seen[key] = true", "seen[key] = false"), coalescePkg, "NoKeyTwice"},
	{"coalesce: a doubt is sent again", one(coalesceGo, "case doubt:", "case doubt && len(batch) < 0:"), coalescePkg, "ALostAnswer"},
	{"coalesce: a caller leaves what is under way", one(coalesceGo, "		<-c.done\n	}", "		return c.out, notSent(ctx)\n	}"), coalescePkg, "UnderWay"},
	{"coalesce: a batch that hangs holds up all", one(coalesceGo, "		time.AfterFunc(g.cfg.Patience, g.beside)\n	}\n	g.mu.Unlock()", "	}\n	g.mu.Unlock()"), coalescePkg, "BesideABatch"},
	{"coalesce: half a batch waits", one(coalesceGo, "(g.cfg.Patience == 0 || len(g.queue) >= g.cfg.Max/2)", "g.cfg.Patience == 0"), coalescePkg, "HalfABatch"},
	{"coalesce: two at once from the start", one(coalesceGo, "(g.cfg.Patience == 0 || len(g.queue) >= g.cfg.Max/2)", "len(g.queue) > 0"), coalescePkg, "BesideABatch"},
	{"group: whose session is changed commits", one(stepGroupGo, "1 / (` + SameSession + `)::int", "1 / (true or ` + SameSession + `)::int"), receiptsPkg, "StepGroup_OneThat"},
	{"group: no bound on its statements", one(stepGroupGo, "milliseconds(min(w.Statement, share)), milliseconds(min(w.Lock, share/2))", `fmt.Sprint(int(0 * share)), "0"`), receiptsPkg, "StepGroup_OneThat"},
	{"group: no share of what all may take", one(stepGroupGo, "share := w.Group / time.Duration(max(steps, 1))", "share := w.Group * time.Duration(max(steps, 1))"), workersPkg, "StepGroup_ManySlow"},
	{"group: no bound on what is prepared", one(stepGroupGo, "defer time.AfterFunc(wait, cancel).Stop()", "defer time.AfterFunc(1000*wait, cancel).Stop()"), workersPkg, "StepGroup_ATextThat"},
	{"group: a panic of an argument is everybody's", one(stepGroupGo, "if p := recover(); p != nil {", "if p := error(nil); p != nil {"), workersPkg, "StepGroup_AnArgument"},
	{"group: who waits alone keeps a flusher", one("workers/stepgroup.go", ", Hold: 2 * quickStep", ""), workersPkg, "StepGroup_StepsThatWait"},
	{"coalesce: who hangs alone keeps a flusher", one(coalesceGo, "if g.cfg.Hold == 0 {", "if g.cfg.Hold >= 0 {"), coalescePkg, "HangAlone"},
	{"group: whoever sets a tenant shares", one("workers/steptext.go", "p.provolatile = 'v'", "p.provolatile = 'x'"), workersPkg, "StepGroup_TheTenant"},
	{"group: nobody shares", one("workers/steplive.go", "|| !call.text.sociable() {", "|| call.text != nil {"), workersPkg, "StepGroup_StepsOfDifferent"},
	{"group: neighbours wait for a row as long as it takes", []edit{
		{"workers/stepgroup.go", "Statement: min(slowStep, lease/8), Lock: min(2*quickStep, lease/16),", "Statement: time.Hour, Lock: time.Hour,"},
		{"workers/stepgroup.go", "Group: writeTimeout(lease) / 2,", "Group: 100 * time.Hour,"},
	}, workersPkg, "StepGroup_AStepThatWaits"},
	{"group: any session is everybody's", []edit{
		{stepGroupGo, "1 / (` + SameSession + `)::int", "1 / (true or ` + SameSession + `)::int"},
		{"workers/steptext.go", "p.provolatile = 'v'", "p.provolatile = 'x'"},
	}, workersPkg, "StepGroup_TheSession"},
	{"group: the last step does not end its run", one("internal/receipts/statement.go", "	if f.Last {\n", "	if f.Last && !grouped {\n"), receiptsPkg, "StepGroup_EachStep"},
	{"crew: it waits for work that cannot come", one("workers/crew.go", "		case <-ctx.Done():\n			return\n", ""), workersPkg, "Crew_"},
	{"upkeep: a shutdown waits for it", one("workers/periodic.go", "	defer context.AfterFunc(w.stop, cancel)()\n", ""), workersPkg, "Upkeep_AShutdown"},
	{"plans: done and not written fails the plan", one("workers/plan.go", "case res.unsettled:", "case res.unsettled && false:"), workersPkg, "Plan_FailsOnly"},
	{"schema: a rule that asks the clock", one(schemaSQL, "when attempt < 0 then", "when lease_expires_at < clock_timestamp() - interval '50 ms' then 'run_owned_is_leased' when attempt < 0 then"), "./migrations", "ADumpWithRuns"},
	{"group: a refusal is a doubt", one(stepGroupGo, "InDoubt: fencing.OutcomeOf(err) == fencing.Unknown &&", "InDoubt: fencing.OutcomeOf(meant) == fencing.Unknown &&"), receiptsPkg, "StepGroup_OneThat"},
	{"group: a parameter of ours for one of theirs", one("internal/receipts/statement.go", "if c.highest > len(f.Args) {", "if c.highest > len(f.Args) && !grouped {"), receiptsPkg, "StepGroup_OneThat"},
	{"group: a doubt is none", one("workers/stepgroup.go", "return refused.InDoubt", "return false && refused.InDoubt"), workersPkg, "StepGroup_ALostAnswer"},
	{"group: who spoils it stays", one("workers/stepgroup.go", "calls[refused.At].text.keepAlone()", "_ = calls[refused.At].text"), workersPkg, "StepGroup_ARefused"},
	{"chunk claims: a run is two chunks'", one("workers/chunkclaim.go", "!twice {", "!twice || c.job > 0 {"), workersPkg, "ChunkClaims_"},
	{"sweep is compiled", one("internal/fencing/begin.go", "'15s';\nset local jit = off`", "'15s'`"), doorbellPkg, "Sweep_PlanIsBounded"},
	{"coalesce: what a batch left out is lost", one(coalesceGo, "case err == nil && ok:", "case err == nil && (ok || len(batch) > 0):"), coalescePkg, "LeavesOut"},
}

func init() {
	mutants = append(mutants, coalesceMutants...)
	drillMutants = append(drillMutants, drillMutant{name: "an element of a batch is not fenced", edits: unfencedElement, args: append(faults("stop", "stop in write", "blackhole"), "--kind", "delivery", "--duration", "40s")})
}
