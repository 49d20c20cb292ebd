package main

const (
	jobsPkg    = "./jobs"
	workersPkg = "./workers"

	notifyGo   = "jobs/notify.go"
	optsGo     = "jobs/opts.go"
	controlGo  = "jobs/control.go"
	keysGo     = "jobs/keys.go"
	listGo     = "jobs/list.go"
	workGo     = "workers/work.go"
	writeGo    = "workers/write.go"
	cleanTxtGo = "workers/clean.go"
	maintainGo = "workers/maintain.go"
	slotsGo    = "workers/slots.go"
	deliverGo  = "workers/delivery.go"
	sweeperGo  = "internal/doorbell/sweep.go"
	bellsGo    = "internal/doorbell/doorbell.go"
	settleGo   = "internal/receipts/receipt.go"
)

var workMutants = []mutant{
	{"jobs: another payload under a key is taken", one(keysGo, "f.reused = !bytes.Equal(f.digest, reqs[i].digest)", "f.reused = bytes.Equal(f.digest, nil)"), jobsPkg, "TestKey_OtherPayload"},
	{"jobs: an expired key is nobody's", one(keysGo, "[]*fencing.Statement{insertKeys, takeExpiredKeys}", "[]*fencing.Statement{insertKeys}"), jobsPkg, "TestKey_Expired"},
	{"jobs: what was cleaned is forgotten", []edit{{notifyGo, "live[root.UUID] = cleaned", "live[root.UUID] = cleaned[:0]"}, {notifyGo, "Existing: true, Runs: f.outcome}", "Existing: true}"}}, jobsPkg, "TestKey_AnswersAfterCleaning"},
	{"jobs: a repeat in no order", one(notifyGo, "slices.SortFunc(a.Runs, func(a, b RunRef) int { return bytes.Compare(a.ID[:], b.ID[:]) })", "_ = slices.Clone(bytes.Clone(a.ID[:]))"), jobsPkg, "TestKey_AnswersAfterCleaning"},
	{"jobs: numbers that numeric cannot hold", one(optsGo, `n != ""`, `false && n != ""`), jobsPkg, "TestNotify_RefusesBadInput"},
	{"jobs: half a pair in metadata", one(optsGo, "|| nulEscape.Match(trimmed)", ""), jobsPkg, "TestNotify_RefusesBadInput"},
	{"jobs: a canceled run is redriven", one(controlGo, "case l.Terminal && isCanceled(l):\n\t\trefused", "case false:\n\t\trefused"), jobsPkg, "TestRedrive_RefusesWhat"},
	{"jobs: an erased run is redriven", one(controlGo, "case erased:", "case erased && false:"), jobsPkg, "TestRedrive_RefusesWhat"},
	{"jobs: a live run is erased", one(controlGo, "case !l.Terminal:\n\t\treturn &StateError{Run: id, Op: \"erase\"", "case false:\n\t\treturn &StateError{Run: id, Op: \"erase\""), jobsPkg, "TestErase_LiveRun"},
	{"jobs: tags stay in River", one(bellsGo, "kind like 'weir\\_%' and tags <> '{}'", "false"), jobsPkg, "TestErase_Leaves"},
	{"jobs: a cancel in exec mode", one(settleGo, `fencing.Args{"runs": fencing.Texts(runs)}`, `fencing.Args{"runs": runs}`), jobsPkg, "TestClient_WorksInEveryExecMode"},
	{"jobs: a list without end", one(listGo, "if len(runs) > limit {", "if len(runs) > 0 {\n\t\tlimit = min(limit, len(runs))"), jobsPkg, "TestList"},

	{"workers: a code as the channel made it", []edit{{workGo, "res.code = clean(res.code, maxCode)", "_ = maxCode"}, {deliverGo, "res.code = clean(classified.Code, maxCode)", "res.code = classified.Code"}}, workersPkg, "TestUnstorable"},
	{"workers: secrets stay", one(cleanTxtGo, "s = mask(s, secrets)", "s = mask(s, secrets[:0])"), workersPkg, "TestUnstorable"},
	{"workers: an error that panics", one(cleanTxtGo, "if p := recover(); p != nil {", "if p := any(nil); p != nil {"), workersPkg, "TestUnstorable"},
	{"workers: the text of an error in River", one(workGo, "failure := &tryError{run: t.run, code: t.result.code}", "failure := &tryError{run: t.run, code: fmt.Sprint(t.result.err)}"), workersPkg, "TestDoorbell_TryEnds"},
	{"workers: throttling counts as a failure", one(deliverGo, "res.event = fencing.Snooze", "res.event = fencing.FailTry"), workersPkg, "TestRetry_ComeBack"},
	{"workers: throttling has no limit", one(deliverGo, ">= w.service.cfg.Delivery.ThrottleLimit", "< 0"), workersPkg, "TestRetry_ThrottleLimit"},
	{"workers: one channel takes every worker", one(slotsGo, "max(limit/2, 1)", "limit"), workersPkg, "TestRetry_DeadHost"},
	{"workers: a doubt is not resolved", one(writeGo, "if inDoubt(err) {", "if false {"), workersPkg, "TestLostAnswer"},
	{"workers: a cancellation in River is rung again", one(sweeperGo, "or not j.metadata ? 'cancel_attempted_at'", "or true"), workersPkg, "TestCancel_InRiver"},
	{"workers: cancellations in River are not followed", one(maintainGo, "errs = append(errs, s.followCanceled(ctx), s.tendResets(", "errs = append(errs, s.tendResets("), workersPkg, "TestCancel_InRiver"},
	{"workers: no sweep", one(maintainGo, "rang, err := s.sweeper.Sweep(ctx)", "rang, err := 0, ctx.Err()"), workersPkg, "TestSweep_RingsAgain"},
	{"workers: a release is not rung", one(writeGo, "if !ended.Terminal {", "if false {"), workersPkg, "TestShutdown_HandsOver"},
	{"workers: a shutdown counts as a failure", one(workGo, "res.event = fencing.Release", ""), workersPkg, "TestShutdown_HandsOver"},
}

func init() { mutants = append(mutants, workMutants...) }
