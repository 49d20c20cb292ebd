package main

const (
	chunkGo    = "workers/chunk.go"
	chunkSQLGo = "internal/doorbell/chunk.go"
	bulkGo     = "jobs/notifymany.go"
)

var chunkMutants = []mutant{
	{"chunk: its job is retired under a live owner", one(bellsGo, "        and not (j.state = 'running' and `+isChunk+` and `+ownsUnder+`)\n", ""), doorbellPkg, "Chunk_IsNotRetired"},
	{"chunk: what waits under a dead one is not rung", one(reapGo, "retirement.AddOrphans(rung, runs...)...", "rung..."), doorbellPkg, "Chunk_ADeadWorkers"},
	{"chunk: one that works is rung again", one(sweeperGo, " and j.id not in (select id from busy)", ""), doorbellPkg, "Chunk_AtWork"},
	{"chunk: a cancelled one is left", one(sweeperGo, "` + isChunk + ` or not", "not"), doorbellPkg, "Chunk_Cancelled"},
	{"chunk: cancelling it cancels runs", one(chunkGo, "!errors.Is(cause, river.ErrJobCancelledRemotely)", "!errors.Is(cause, context.Canceled) || cause != nil"), workersPkg, "TestChunk_CancelledInRiver"},
	{"chunk: a retry is not rung", one(chunkGo, "kind.ringsRetries = true", "kind.ringsRetries = false"), workersPkg, "TestChunk_SendsAnd"},
	{"chunk: what it could not claim is left", one(chunkGo, "	if len(c.odd) == 0 {", "	if len(c.odd) >= 0 {"), workersPkg, "TestChunk_WhatItCannot"},
	{"chunk: it hoards", one(slotsGo, "limit-s.used, ", ""), workersPkg, "TestChunk_NeverHoards"},
	{"chunk: it leaves nothing to others", one(slotsGo, "s.limit-s.reserve", "s.limit"), workersPkg, "TestChunk_NeverHoards"},
	{"chunk: unlike runs share a job", one(bulkGo, "strconv.Itoa(o.Priority), r.channel, ", "strconv.Itoa(0), "), jobsPkg, "TestNotifyMany_OnlyWhatIsAlike"},
	{"delivery: an earlier unknown is forgotten", one("workers/work.go", "			res.outcome, res.notSent = receipts.Unknown, false\n", ""), workersPkg, "TestDelivery_WhatAnEarlier"},
	{"chunk: no bound on all copies together", one(bulkGo, "if bytes > MaxNotifyBytes {", "if bytes < 0 {"), jobsPkg, "TestNotify_AllCopies"},
}

func init() { mutants = append(mutants, chunkMutants...) }
