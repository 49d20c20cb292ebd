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
)

var mutants = []mutant{
	// The fence.
	{"fence without the attempt", statementGo, `where = append(where, "r.attempt = @attempt::bigint")`,
		`where = append(where, "@attempt::bigint is not null")`, receiptsPkg, "Step_StaleOwner|Step_FenceThatWaited"},
	{"terminal write without the attempt", statementGo, `where = append(where, "r.attempt = @attempt::bigint")`,
		`where = append(where, "(@attempt::bigint is not null or "+map[bool]string{true: "false", false: "false"}[e == CommitStep]+")")`, fencingPkg, "Transitions_StaleToken"},
	{"fence without the lock", statementGo, `lock := "for no key update of r"`,
		`lock := ""`, fencingPkg + "/...", "Claim_FullLease"},
	{"fence result not in the receipt", "internal/receipts/step.go", `(select attempt from fenced)`,
		`coalesce((select attempt from fenced), 0)`, receiptsPkg, "Step_StaleOwner"},
	{"receipt without its key", "internal/receipts/step.go", `case when receipt.outcome <> 'ok' then excluded.effect end`,
		`excluded.effect`, receiptsPkg, "Step_AlreadyDone"},
	{"step receipt as a plain insert", "internal/receipts/step.go", "set effect = case when receipt.outcome <> 'ok' then excluded.effect end",
		"set effect = null", receiptsPkg, "Step_ExecutedAgain"},

	// The claim.
	{"claim ignores due", claimGo, "and r.next_attempt_at <= clock_timestamp()", "", fencingPkg, "Claim_Refused"},
	{"claim takes over a lease", claimGo, "and r.lease_expires_at is null and", "and", fencingPkg, "Claim_Refused"},
	{"claim of another kind", claimGo, "r.id = @run and r.kind = @kind", "r.id = @run and @kind::text is not null", fencingPkg, "Claim_Refused"},
	{"claim without the suspect slot", claimGo, "(r.reaps < 2 or @suspect::boolean)", "(true or @suspect::boolean)", fencingPkg, "Claim_Refused"},
	{"claim keeps the attempt", effectsGo, "Claim:      {owner: takes, raisesAttempt: true,", "Claim:      {owner: takes,", fencingPkg, "Transitions_Every|Claim_OneWinner"},
	{"lease stamped with now()", statementGo, `"lease_expires_at = clock_timestamp() + @lease::interval"`,
		`"lease_expires_at = now() + @lease::interval"`, fencingPkg, "Claim_FullLease"},
	{"started overwrites ok", "internal/receipts/claim.go", "where receipt.outcome <> 'ok'", "", fencingPkg, "Claim_StartedReceipt"},

	// Tokens.
	{"attempt not raised by release", effectsGo, "Release: {fenced: true, owner: gives, raisesAttempt: true,", "Release: {fenced: true, owner: gives, raisesAttempt: len(events) == 0,", fencingPkg, "Transitions_Every"},
}
