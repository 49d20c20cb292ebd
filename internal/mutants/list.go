package main

const (
	fencingPkg  = "./internal/fencing"
	receiptsPkg = "./internal/receipts"
	doorbellPkg = "./internal/doorbell"

	statementGo = "internal/fencing/statement.go"
	effectsGo   = "internal/fencing/effects.go"
	keeperGo    = "internal/fencing/keeper.go"
	heldGo      = "internal/fencing/held.go"
	claimGo     = "internal/fencing/claim.go"
	reapGo      = "internal/fencing/reap.go"
	cleanGo     = "internal/fencing/clean.go"
	doubtGo     = "internal/fencing/doubt.go"
	stepGo      = "internal/receipts/step.go"
	endGo       = "internal/receipts/end.go"
	receiptGo   = "internal/receipts/receipt.go"
	doorbellGo  = "internal/doorbell/doorbell.go"
	sweepGo     = "internal/doorbell/sweep.go"
	canceledGo  = "internal/doorbell/canceled.go"
	schemaSQL   = "migrations/sql/0001_core.sql"

	attemptOfFence = `where = append(where, "r.attempt = @attempt::bigint")`
	raisesAttempt  = "if eff.raisesAttempt {"
)

// one breaks a single text.
func one(file, old, new string) []edit { return []edit{{file, old, new}} }

// notRaisedBy leaves the token of an event's run as it was.
func notRaisedBy(event string) []edit {
	return one(statementGo, raisesAttempt, "if eff.raisesAttempt && e != "+event+" {")
}

var mutants = []mutant{
	// The fence.
	{"fence without the attempt", one(statementGo, attemptOfFence, `where = append(where, "@attempt::bigint is not null")`), receiptsPkg, "Step_StaleOwner|Step_FenceThatWaited"},
	{"terminal write without the attempt", one(statementGo, attemptOfFence, `where = append(where, map[bool]string{true: "@attempt::bigint is not null", false: "r.attempt = @attempt::bigint"}[e == Succeed || e == FailTry])`), fencingPkg, "Transitions_StaleToken"},
	{"fence without the lock", one(statementGo, `lock := "for no key update of r"`, `lock := ""`), fencingPkg, "Claim_FullLease"},
	{"fence result not in the receipt", one(stepGo, `(select fenced.attempt from fenced)`, `coalesce((select fenced.attempt from fenced), 0)`), receiptsPkg, "Step_StaleOwner"},
	{"receipt without its key", one(stepGo, `case when receipt.outcome <> 'ok' then excluded.effect end`, `excluded.effect`), receiptsPkg, "Step_AlreadyDone"},
	{"a failed step is done", one(stepGo, `case when receipt.outcome <> 'ok' then excluded.effect end`, `null`), receiptsPkg, "Step_ExecutedAgain"},
	{"lost is not told from done", one(stepGo, `case pgErr.Code == "23502" && pgErr.ColumnName == "attempt":`, `case pgErr.Code == "23502":`), receiptsPkg, "Step_AlreadyDone"},

	// The claim.
	{"claim ignores due", one(claimGo, "and r.next_attempt_at <= clock_timestamp()", ""), fencingPkg, "Claim_Refused"},
	{"claim takes over a lease", []edit{
		{claimGo, "and r.next_attempt_at <= clock_timestamp()", "and (r.next_attempt_at <= clock_timestamp() or r.lease_expires_at < clock_timestamp())"},
		{claimGo, "and r.lease_expires_at is null", ""},
	}, fencingPkg, "Claim_Refused"},
	{"claim of another kind", one(claimGo, "r.id = @run and r.kind = @kind", "r.id = @run and @kind::text is not null"), fencingPkg, "Claim_Refused"},
	{"claim without the suspect slot", one(claimGo, "(r.reaps < 2 or @suspect::boolean)", "(true or @suspect::boolean)"), fencingPkg, "Claim_Refused"},
	{"lease stamped with now()", one(statementGo, `"lease_expires_at = clock_timestamp() + @lease::interval"`, `"lease_expires_at = now() + @lease::interval"`), fencingPkg, "Claim_FullLease"},
	{"now() among the statements", one(statementGo, `"lease_expires_at = clock_timestamp() + @lease::interval"`, `"lease_expires_at = now() + @lease::interval"`), fencingPkg, "Statements_NameTheir"},
	{"started overwrites ok", one("internal/receipts/claim.go", "where receipt.outcome <> 'ok'", ""), fencingPkg, "Claim_StartedReceipt"},

	// Tokens and budgets.
	{"attempt not raised by claim", notRaisedBy("Claim"), fencingPkg, "Transitions_Every"},
	{"attempt not raised by fail", notRaisedBy("FailTry"), fencingPkg, "Transitions_Every"},
	{"attempt not raised by snooze", notRaisedBy("Snooze"), fencingPkg, "Transitions_Every"},
	{"attempt not raised by release", notRaisedBy("Release"), fencingPkg, "Transitions_Every"},
	{"attempt not raised by reap", notRaisedBy("Reap"), fencingPkg, "Transitions_Every"},
	{"attempt not raised by cancel", notRaisedBy("Cancel"), receiptsPkg, "Cancel_TakesTheToken"},
	{"attempt not raised by redrive", notRaisedBy("Redrive"), receiptsPkg, "Redrive"},
	{"a commit keeps the reaps", one(effectsGo, `CommitStep: {fenced: true, owner: renews, reaps: "0",`, `CommitStep: {fenced: true, owner: renews,`), receiptsPkg, "Step_EffectAndReceipt"},
	{"a snooze burns the budget", one(effectsGo, `Snooze:  {fenced: true, owner: gives, raisesAttempt: true,`, `Snooze:  {fenced: true, owner: gives, raisesAttempt: true, failures: "r.failures + 1",`), fencingPkg, "Transitions_Every"},
	{"guards out of order", one("internal/fencing/machine.go", `{From: "running", Event: Reap, When: CancelRequested, To: "canceled", Code: CodeCanceled},
`, ""), fencingPkg, "Reap_Accounting"},

	// The end of a try.
	{"settle overwrites ok", one(endGo, "output = excluded.output, recorded_at = clock_timestamp()\n        where receipt.outcome <> 'ok'", "output = excluded.output, recorded_at = clock_timestamp()"), receiptsPkg, "End_NeverOverwrites"},
	{"release takes back the receipts of others", one(endGo, "and t.attempt >= @began::bigint and t.outcome = 'started'", "and @began::bigint is not null and t.outcome = 'started'"), receiptsPkg, "End_ReleaseLeaves"},

	// The heartbeat.
	{"heartbeat without the attempt", one(keeperGo, "join weir.run r on r.id = a.id and r.attempt = a.attempt", "join weir.run r on r.id = a.id and a.attempt is not null"), fencingPkg, "Keeper_DoesNotRenew"},
	{"heartbeat past the step's deadline", one(keeperGo, "and r.step_deadline_at > clock_timestamp()\n", "\n"), fencingPkg, "Keeper_Overdue"},
	{"heartbeat waits for locks", one(keeperGo, "order by r.id for no key update of r skip locked\n)\nupdate weir.run r set lease_expires_at", "order by r.id for no key update of r\n)\nupdate weir.run r set lease_expires_at"), fencingPkg, "Keeper_LockedByOwn"},
	{"heartbeat in one statement", one(keeperGo, "beatSlice = 5000", "beatSlice = 50000"), fencingPkg, "Keeper_Slices"},
	{"heartbeat told apart by run", one(keeperGo, "if renewed[token{d.held.Run, d.attempt}] {", "if renewed[token{d.held.Run, d.attempt}] || renewed[token{d.held.Run, d.attempt + 1}] {"), fencingPkg, "Keeper_SameRun"},
	{"a beat without an end", one(keeperGo, "ctx, cancel := context.WithTimeout(ctx, k.every)", "ctx, cancel := context.WithCancel(ctx)"), fencingPkg, "Keeper_Recovers"},
	{"a failed connection is kept", one(keeperGo, "k.disconnect()\n			return", "return"), fencingPkg, "Keeper_LeavesARead"},
	{"own finish is a loss", one(heldGo, "case h.dropped || h.skipped || h.finishing:", "case h.dropped || h.skipped:"), fencingPkg, "Keeper_OwnFinish"},
	{"a doubt is a loss", one(heldGo, "case h.dropped || h.skipped || h.finishing:", "case h.dropped || h.finishing:"), fencingPkg, "Keeper_NoFalseLoss"},
	{"an older row is a loss", one(heldGo, "case attempt < h.attempt && ownable:", "case false && ownable:"), fencingPkg, "Keeper_NoFalseLoss"},
	{"locked is no proof of life", one(heldGo, "until := since.Add(2 * h.lease / BeatsPerLease)", "until := since"), fencingPkg, "Keeper_LockedByOwn"},
	{"locked is a renewal", one(heldGo, "until := since.Add(2 * h.lease / BeatsPerLease)", "until := since.Add(h.lease)"), fencingPkg, "Stopwatch_Locked"},
	{"stopwatch runs for the whole lease", one(heldGo, "return !h.dropped && time.Since(h.proof) < h.lease-margin(h.lease)", "return !h.dropped"), fencingPkg, "Stopwatch_Ends"},
	{"stopwatch starts at the answer", one(heldGo, "= since, since.Add(h.lease-margin(h.lease)), since", "= since, time.Now().Add(h.lease-margin(h.lease)), since"), fencingPkg, "Stopwatch_Ends"},

	// The reaper.
	{"reaper takes live leases", []edit{
		{reapGo, "and r.lease_expires_at < (select clock_timestamp())", ""},
		{effectsGo, " and r.lease_expires_at < clock_timestamp()", ""},
	}, fencingPkg, "Reap_EachRun|Reap_Owner"},
	{"reaper waits for locks", one(statementGo, "limit @limit::int for no key update of r skip locked", "limit @limit::int for no key update of r"), fencingPkg, "Reap_Frozen"},
	{"reaper looks before it locks", one(statementGo, "limit @limit::int for no key update of r skip locked", "limit @limit::int"), fencingPkg, "Reap_Frozen"},
	{"reaper does not settle", one(reapGo, "if err := r.Settle(ctx, tx, runs); err != nil {", "if err := error(nil); err != nil {"), fencingPkg, "Reap_Settles"},
	{"reaper settles first", one(reapGo, "	rows, err := tx.Query(ctx, stmt.SQL, stmt.Bind(Args{\"max_reaps\": r.MaxReaps, \"limit\": limit, \"only\": only})...)",
		"	settle := r.Settle\n	_ = settle\n	r = &Reaper{DB: r.DB, Bells: r.Bells, MaxReaps: r.MaxReaps, Limit: r.Limit, Settle: func(context.Context, pgx.Tx, []uuid.UUID) error { return nil }}\n	rows, err := tx.Query(ctx, stmt.SQL, stmt.Bind(Args{\"max_reaps\": r.MaxReaps, \"limit\": limit, \"only\": only})...)"), fencingPkg, "Reap_SettlesIn"},
	{"reaper does not retire", one(reapGo, "if x.Doorbell != 0 {", "if x.Doorbell < 0 {"), fencingPkg, "Reap_EachRun"},
	{"reaper ignores River's cancel", one(reapGo, "case x.Doorbell != 0 && slices.Contains(retirement.Canceled, x.Doorbell):", "case x.Doorbell < 0 && slices.Contains(retirement.Canceled, x.Doorbell):"), fencingPkg, "Reap_Doorbell"},
	{"reaper stops at a stubborn row", one(reapGo, "if err != nil && ctx.Err() == nil {", "if err != nil && ctx == nil {"), fencingPkg, "Reap_Stubborn"},
	{"reaper falls back on deadlocks only", one(reapGo, "if err != nil && ctx.Err() == nil {", "if IsTransient(err) {"), fencingPkg, "Reap_Stubborn"},

	// Unknown commits.
	{"doubt without raising", one(doubtGo, "set attempt = r.attempt + 1, lease_expires_at", "set attempt = r.attempt, lease_expires_at"), fencingPkg, "Doubt_"},
	{"doubt without waiting", one(doubtGo, "    for no key update\n)\nupdate weir.run r set attempt", "    for no key update skip locked\n)\nupdate weir.run r set attempt"), fencingPkg, "Doubt_Waits"},
	{"doubt about anybody's attempt", one(doubtGo, "where id = @run and attempt = @attempt::bigint and status", "where id = @run and @attempt::bigint is not null and status"), fencingPkg, "Doubt_"},
	{"a translated FATAL is a refusal", []edit{{"internal/fencing/db.go", `pgErr.SeverityUnlocalized == "FATAL"`, `pgErr.Severity == "FATAL"`}}, fencingPkg, "OutcomeOf"},

	// Cancel, redrive.
	{"cancel of an owner that has begun", one(receiptGo, "if open && (l.Owned || l.Kind == fencing.KindBranchReset) {", "if open && code == `` && (l.Owned || l.Kind == fencing.KindBranchReset) {"), receiptsPkg, "Cancel_Waits|Cancel_Races"},
	{"cancel looks before it locks", one("internal/fencing/cancel.go", "from weir.run where id = @run for no key update`)", "from weir.run where id = @run`)"), receiptsPkg, "Cancel_Waits|Cancel_Races"},
	{"cancel leaves started open", one(receiptGo, "if _, err := tx.Exec(ctx, settleRows.SQL, settleRows.Bind(fencing.Args{\"runs\": fencing.Texts([]uuid.UUID{run})})...); err != nil {", "if err := error(nil); err != nil {"), receiptsPkg, "Cancel_Settles"},
	{"redrive of canceled", one(statementGo, "if g := m.onlyGuards(e); g != \"\" {", "if g := m.onlyGuards(e); g != \"\" && e != Redrive {"), receiptsPkg, "Redrive"},

	// The doorbell.
	{"retire any attempt", one(doorbellGo, "(j.state = 'running' and j.attempted_at = d.attempted_at)", "(j.state = 'running')"), doorbellPkg, "Retire_Exactly"},
	{"retire waits", one(doorbellGo, "order by j.id for update of j skip locked", "order by j.id for update of j"), doorbellPkg, "Retire_LeavesLocked"},
	{"ring notes on an owner", one(reapGo, "where r.id = d.run and r.lease_expires_at is null", "where r.id = d.run"), doorbellPkg, "Ring_Leaves"},
	{"reap by the process's clock", []edit{
		{reapGo, "const reapScope = `r.next_attempt_at = 'infinity' and r.lease_expires_at < (select clock_timestamp())", "var processNow = `'` + time.Now().UTC().Format(time.RFC3339) + `'::timestamptz`\n\nvar reapScope = `r.next_attempt_at = 'infinity' and r.lease_expires_at < ` + processNow + `"},
		{reapGo, "lease_expires_at < (select clock_timestamp())\n    and status in", "lease_expires_at < `+processNow+`\n    and status in"},
		{statementGo, `return " and " + anyLeaseIsOver`, `return " and r.lease_expires_at < " + processNow`},
	}, "./test/clocks", "Clock_"},
	{"ring by the ringer's clock", one("internal/doorbell/clock.go", "p.ScheduledAt = new(time.Time)", "_ = new(time.Time)"), doorbellPkg, "Ring_ByThe"},
	{"ring by the working client's clock", one(doorbellGo, "if !*stamped {", "if !*stamped && false {"), doorbellPkg, "Ring_ByThe"},
	{"sweep rings again each tick", one(sweepGo, "and j.scheduled_at > (select clock_timestamp()) + @slack::interval", ""), doorbellPkg, "Sweep_"},
	{"sweep does not look again", one(sweepGo, "where r.id = any(@runs::uuid[]) and `+dueWhere+` and `+silentWhen+` order by r.id", "where r.id = any(@runs::uuid[]) and (true or `+dueWhere+` and `+silentWhen+`) order by r.id"), doorbellPkg, "Sweep_Looks|Sweep_Two"},
	{"sweep waits for locks", one(sweepGo, "order by r.id for no key update of r skip locked", "order by r.id for no key update of r"), doorbellPkg, "Sweep_Passes"},
	{"sweep rings blocked runs", one(sweepGo, "and (r.blocked_reason is null or j.attempted_at < (select clock_timestamp()) - @blocked::interval)", ""), doorbellPkg, "Sweep_LeavesAlone"},
	{"sweep leaves blocked runs for ever", one(sweepGo, "or j.attempted_at < (select clock_timestamp()) - @blocked::interval)", ")"), doorbellPkg, "Sweep_RingsFor"},
	{"sweep trusts the leader's clock", one(sweepGo, "or (j.state <> 'available' and j.scheduled_at < (select clock_timestamp()) - @grace::interval)", ""), doorbellPkg, "Sweep_RingsFor"},
	{"sweep without the grace", one(sweepGo, "and r.next_attempt_at < (select clock_timestamp()) - @grace::interval`", "and r.next_attempt_at < (select clock_timestamp()) - 0 * @grace::interval`"), doorbellPkg, "Sweep_LeavesAlone"},
	{"sweep begins anew each tick", one(sweepGo, "s.after = cursor{at, run}", "_ = cursor{at, run}"), doorbellPkg, "Sweep_Walks"},
	{"sweep page's limit as a guess", one(sweepGo, "offset 0) j on true", ") j on true"), doorbellPkg, "Sweep_Plan"},
	{"cancelled scan trusts its arguments", one(canceledGo, "\n        and args ->> 'run_id' ~ '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$'", ""), doorbellPkg, "Canceled_Finds"},

	// The cleaner.
	{"cleaner takes young runs", one(cleanGo, "and r.finished_at < clock_timestamp() - coalesce(", "and r.finished_at < 'infinity'::timestamptz - coalesce("), fencingPkg, "Clean_Old"},
	{"cleaner takes all kinds alike", one(cleanGo, "where k.kind = r.kind)", "where k.kind = r.kind and false)"), fencingPkg, "Clean_EachKind"},
	{"cleaner does not rest", one(cleanGo, "if c.Share > 0 {", "if false {"), fencingPkg, "Clean_Rests"},
	{"cleaner leaves expired keys behind", one(cleanGo, "return tag.RowsAffected() == int64(c.Page), err", "return tag.RowsAffected() < 0, err"), fencingPkg, "Clean_AllExpired"},
	{"cleaner cleans twice at once", one(cleanGo, "	if !c.busy.TryLock() {\n		return 0, nil\n	}\n	defer c.busy.Unlock()\n", ""), fencingPkg, "Clean_Rests"},
	{"cleaner forgets its place after an error", one(cleanGo, "; err == nil && !more {", "; !more {"), fencingPkg, "Clean_AnError"},
	{"cleaner begins again and again", one(cleanGo, "c.after, more, err = c.page(ctx, c.after); err == nil && !more {", "c.after, more, err = c.page(ctx, c.after); err == nil && (!more || c.Longest > 0) {"), fencingPkg, "Clean_TheNext"},
	{"cleaner does not wait for its twin", one(cleanGo, "order by id for update`)", "order by id`)"), fencingPkg, "Clean_Two"},
	{"cleaner expires a key early", one(cleanGo, "expires_at = case when not exists (", "expires_at = case when true or not exists ("), fencingPkg, "Clean_KeyOfA"},

	// What the database itself refuses. The fingerprint of the migrations makes a template of its own.
	{"payload may change", one(schemaSQL, "or new.body is not null\n", "\n"), fencingPkg, "Schema_Payload"},
	{"payload of a live run may be erased", one(schemaSQL, "where id = old.run_id and finished_at is not null", "where id = old.run_id"), fencingPkg, "Schema_Payload"},
	{"attempt may go back", one(schemaSQL, "when (new.attempt < old.attempt)", "when (new.attempt < old.attempt - 100)"), fencingPkg, "Schema_Refuses"},
	{"a lease anywhere", one(schemaSQL, "when lease_expires_at is not null and status not in ('processing', 'running', 'executing') then 'run_lease_on_ownable'\n", ""), fencingPkg, "Schema_Refuses"},
	{"a run of any shape", one(schemaSQL, "constraint run_is_whole check (weir.run_is_whole(", "constraint run_is_whole check (true or weir.run_is_whole("), fencingPkg, "Schema_Refuses"},
	{"renewals touch an index", one(schemaSQL, "create index run_trouble_idx", "create index run_lease_idx on weir.run (lease_expires_at);\ncreate index run_trouble_idx"), fencingPkg, "Keeper_Renewals"},
}
