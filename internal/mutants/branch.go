package main

const (
	resetGo      = "workers/branchreset.go"
	pollGo       = "workers/branchpoll.go"
	resetReapGo  = "workers/branchreaper.go"
	jobsResetGo  = "jobs/reset.go"
	jobsBranchGo = "jobs/branch.go"
	neonGo       = "workers/branch/neon/provider.go"
	neonWireGo   = "workers/branch/neon/wire.go"
	swapGo       = "workers/branch/pgtemplate/provider.go"
	swapLockGo   = "workers/branch/pgtemplate/session.go"
	nameGo       = "workers/branch/pgtemplate/name.go"
	neonPkg      = "./workers/branch/neon"
	templatePkg  = "./workers/branch/pgtemplate"
)

var branchMutants = []mutant{
	{"branches: a page begins anew", one("jobs/branchlist.go", "where name > @after::text", "where name > left(@after::text, 0)"), jobsPkg, "TestListBranches"},
	{"branches: a page skips one", one("jobs/branchlist.go", "page.Next = list[limit-1].Name", "page.Next = list[len(list)-1].Name + \"~\""), jobsPkg, "TestListBranches"},
	{"branches: the oldest reset is shown", one("jobs/branchlist.go", "x.id desc limit 1", "x.id limit 1"), jobsPkg, "TestListBranches"},
	{"branches: two resets in flight", one(jobsResetGo, "o.ExclusiveKey = r.Branch", ""), jobsPkg, "TestResetBranch_FiftyRacingCallers"},
	{"branches: a point in time in the future", one(jobsResetGo, "if !future && !gone {", "if true {"), jobsPkg, "TestResetBranch_BadInput"},
	{"branches: a key for another time", one(jobsResetGo, "delivery.Canonical(r.utc())", "delivery.Canonical(r.Branch)"), jobsPkg, "TestResetBranch_KeyStandsForOneRequest"},
	{"branches: a long name", one(jobsBranchGo, "if len(f[1]) > maxDatabaseBytes && len(f[1]) <= MaxBranchBytes {", "if false {"), jobsPkg, "TestRegisterBranch_Refuses"},
	{"branches: a registration changes in flight", one(jobsBranchGo, "if err := notInFlight(ctx, tx, b.Name); err != nil {", "if err := notInFlight(ctx, tx, b.Name); false {"), jobsPkg, "TestRegisterBranch_IsRepeatable"},
	{"branches: issued again after a lost answer", one(resetGo, "if !began {", "if !began && false {"), workersPkg, "TestReset_LostAnswer"},
	{"branches: unknown at once", one(resetGo, "since >= t.cfg.AskWait", "since >= 0"), workersPkg, "TestReset_LostAnswer"},
	{"branches: asked for ever", one(resetGo, "since >= t.cfg.AskWait", "since < 0"), workersPkg, "TestReset_LostAnswer"},
	{"branches: not accepted for ever", one(resetGo, "> t.cfg.Limit", "< 0"), workersPkg, "TestReset_SeveralOperations"},
	{"branches: polled for ever", one(pollGo, "case age > t.cfg.Limit:", "case age < 0:"), workersPkg, "TestReset_EveryWord"},
	{"branches: failed is held for ever", one(pollGo, "> t.cfg.FailedLimit:", "< 0:"), workersPkg, "TestReset_EveryWord"},
	{"branches: done with the first operation", one(pollGo, "if len(open) == 0 {", "if len(open) < len(ops) {"), workersPkg, "TestReset_SeveralOperations"},
	{"branches: what is lost is polled for ever", one(pollGo, "if lost(r, t.claimed.Now, t.cfg.AskWait) {", "if false {"), workersPkg, "TestReset_TroubleWhilePolling"},
	{"branches: a poll is a failed try", one(endGo, "where coalesce(@code, '') <> '` + CodePolling + `'", ""), workersPkg, "TestReset_IssuedOnce"},
	{"branches: a requested cancel ends it", one(effectsGo, " and r.kind <> '\" + KindBranchReset + \"'\"", "\""), receiptsPkg, "TestCancel_ARequestedOne"},
	{"branches: a cancel looks at open steps only", one(settleGo, "if l.Kind == fencing.KindBranchReset {\n\t\tisOpen", "if false {\n\t\tisOpen"), receiptsPkg, "TestCancel_OfABranchReset"},
	{"branches: an owner's cancel has no fence", one(endGo, "r.id = @run and r.attempt = @attempt::bigint and r.lease_expires_at is not null", "r.id = @run and (r.attempt = @attempt::bigint or true)"), receiptsPkg, "TestCancel_ARequestedOne"},
	{"branches: cancelled in River and forgotten", one(writeGo, "if !done && !l.Owned {", "if false {"), workersPkg, "TestCancelReset_InRiver"},
	{"branches: nothing is closed", one(resetReapGo, "closed, cerr = s.closeResets(ctx)", "closed, cerr = 0, ctx.Err()"), workersPkg, "TestDbopsReaper_Closes"},
	{"branches: closed before anybody came", one(resetReapGo, "s.watched.round(err == nil, patience) >= patience", "s.watched.round(err == nil, patience) >= 0"), workersPkg, "TestDbopsReaper_AfterAnOutage"},
	{"branches: closed while it is fresh", one(resetReapGo, "- @limit::interval", "- 0 * @limit::interval"), workersPkg, "TestDbopsReaper_Closes"},

	{"neon: a refusal of a double fails", one(neonGo, "case found:\n\t\treturn ops, nil\n\tcase refused.status", "case found && false:\n\t\treturn ops, nil\n\tcase refused.status"), neonPkg, "TestIssue_ADoubleThatIsRefused"},
	{"neon: 502 is a refusal", one(neonGo, "refused.status/100 != 4", "refused.status/100 == 9"), neonPkg, "TestIssue_WhatAnAnswerMeans"},
	{"neon: 409 is a refusal", one(neonGo, "case refused.status == http.StatusConflict:", "case refused.status == 1:"), neonPkg, "TestIssue_WhatAnAnswerMeans"},
	{"neon: the first page only", one(neonGo, "cursor = next\n", "return apiBranch{}, nil\n"), neonPkg, "TestFind_AcrossPages"},
	{"neon: whatever the branch does", one(neonGo, "case o.CreatedAt.Before(backup.CreatedAt.Add(sameCall)) && ", "case "), neonPkg, "TestFind_ByTheBackup"},
	{"neon: everybody finds out for himself", one(neonWireGo, "w.holdFor(after)", ""), neonPkg, "TestHold"},
	{"neon: a key in an error", one(neonWireGo, `return strings.ReplaceAll(s, w.cfg.APIKey, "***")`, "return s"), neonPkg, "TestPoll_Gone"},
	{"neon: issued by whoever", one(neonGo, "if err := r.StillMine(ctx); err != nil {", "if err := r.StillMine(ctx); false {"), neonPkg, "TestIssue_Asks"},

	{"neon: an answer without operations is the end", one(neonGo, "len(answer.Operations) == 0 ||", "false ||"), neonPkg, "TestAnswers_ThatNameNoOperation"},
	{"neon: any operation will do", one(neonGo, "answer.Operation.ID != op.ID", "false"), neonPkg, "TestAnswers_ThatNameNoOperation"},

	{"pgtemplate: without the lock", one(swapLockGo, "if got {", "if true {"), templatePkg, "TestIssue_NothingWithoutTheLock"},
	{"pgtemplate: anybody takes the lock", one(swapLockGo, "if err := s.reset.StillMine(ctx); err != nil {", "if err := s.reset.StillMine(ctx); false {"), templatePkg, "TestIssue_NothingWithoutTheLock"},
	{"pgtemplate: a late one goes on", []edit{{swapLockGo, "if err := r.StillMine(ctx); err != nil {", "if err := r.StillMine(ctx); false {"}, {swapGo, "if err := r.StillMine(ctx); err != nil {", "if err := r.StillMine(ctx); false {"}}, templatePkg, "TestIssue_Refuses"},
	{"pgtemplate: every database is a branch", one(nameGo, "case slices.Contains(p.protected, r.Target) || ours.MatchString(r.Target):", "case slices.Contains(p.protected, r.Target) && r.Target == \"\":"), templatePkg, "TestIssue_Refuses"},
	{"pgtemplate: names in letters", one(nameGo, "len(r.Target) > maxName", "len([]rune(r.Target)) > maxName"), templatePkg, "TestIssue_Refuses"},
	{"pgtemplate: twice for one run", one(swapGo, "if target.mark.Run == r.RunID {", "if false {"), templatePkg, "TestIssue_TheBranchEquals"},
	{"pgtemplate: a storm keeps it", one(swapGo, "case !isState(err, \"55006\") && ", "case "), templatePkg, "TestIssue_UnderAStorm"},
	{"pgtemplate: what was there stays", one(swapGo, "return done(r, note(s.tidy(ctx))), nil\n}\n\n// note", "return done(r, \"\"), nil\n}\n\n// note"), templatePkg, "TestIssue_TheBranchEquals"},
}

func init() { mutants = append(mutants, branchMutants...) }
