package main

const (
	planReadGo   = "jobs/planread.go"
	planWaitGo   = "jobs/planwaiting.go"
	planDecideGo = "jobs/plandecide.go"
	undoGo       = "jobs/compensate.go"
	planWorkGo   = "workers/plan.go"
	planPagesGo  = "internal/ui/plans.go"
	planFormsGo  = "internal/ui/plandecide.go"
	wordsGo      = "internal/ui/words.go"
)

var planMutants = []mutant{
	{"plans: approved without a name", one(planDecideGo, `validateWords("by", by, MaxPersonBytes); err != nil {`, `validateText("by", by, MaxPersonBytes); err != nil {`), jobsPkg, "TestPlan_ApprovalNeeds"},
	{"plans: any digest is approved", one(planDecideGo, "case d.digest != digest:", "case false:"), jobsPkg, "TestPlan_ApprovalNeeds"},
	{"plans: a reader leaves what is overdue", one(planReadGo, "if !p.Interrupted && !p.Overdue {", "if !p.Interrupted {"), jobsPkg, "TestPlan_ReaderEnds"},
	{"plans: what is overdue is offered", one(planWaitGo, "r.expires_at > (select clock_timestamp())", "true"), jobsPkg, "TestPlan_WaitingOnes"},
	{"plans: a failed undo fails all", one(undoGo, "return nil, &undoError{err}", "return nil, err"), jobsPkg, "TestPlan_CompensationRefuses"},
	{"plans: an undo without its savepoint", one(undoGo, "nested.Rollback(ctx); rollbackErr != nil {", "nested.Commit(ctx); false && rollbackErr != nil {"), jobsPkg, "TestPlan_CompensationRefuses"},
	{"plans: an undo is not checked", one(undoGo, "err = c.checkUndo(*call)", "_ = c.checkUndo"), jobsPkg, "TestPlan_CompensationRefuses"},
	{"plans: failed by a worker that did not begin", one(planWorkGo, "do: w.run, judge: later,", "do: w.run,"), workersPkg, "TestPlan_IsNotFailed"},
	{"plan pages: nobody approves", one(planFormsGo, "case doApprove:\n\t\tif by == \"\" {", "case doApprove:\n\t\tif false {"), uiPkg, "TestPlanPages_Nobody"},
	{"plan pages: nobody is offered to approve", one(planPagesGo, "open && user.Name != \"\", open", "open, open"), uiPkg, "TestPlanPages_Nobody"},
	{"plan pages: the form says who approves", one(planFormsGo, "ctx, by := r.Context(), UserOf(r.Context()).Name", "ctx, by := r.Context(), r.FormValue(\"by\")"), uiPkg, "TestPlanPages_ApproveInTheName"},
	{"plan pages: what cannot be seen", one(wordsGo, " && !isUnseen(r)", ""), uiPkg, "TestPlanPages_EveryArgument"},
	{"plan pages: who asks twice is refused", one(planFormsGo, "if errors.Is(err, jobs.ErrState) {", "if false {"), uiPkg, "TestPlanPages_ProgressAndUndo"},
}

func init() { mutants = append(mutants, planMutants...) }
