package main

const (
	webPkg       = "./web"
	webActions   = "web/session/actions.ts"
	webInput     = "web/session/input.ts"
	webCore      = "web/session/core.ts"
	webTable     = "web/session/table.ts"
	webJudge     = "web/session/judge.ts"
	webDrafts    = "web/session/drafts.ts"
	webWriter    = "web/session/writer.ts"
	webRecord    = "web/session/kinds/record.ts"
	webBehaviour = "SessionCore_Behaviours"
	webRandom    = "SessionCore_RandomLives"
	deskEventsGo = "desk/events.go"
	deskLookGo   = "desk/look.go"
)

func init() { mutants = append(mutants, webMutants...) }

var webMutants = []mutant{
	// The core.
	{"session: no generation", one(webInput, "s.request!.generation !== s.generation", "s.request!.generation !== s.generation && s.seq < 0"), webPkg, webBehaviour},
	{"session: a success of an older edit is one of all", one(webInput, `s.seq === sent.seq ? "saved"`, `s.seq >= sent.seq ? "saved"`), webPkg, webBehaviour},
	{"session: a success settles newer edits", one(webActions, "if (n.seq === sent.seq) {", "if (n.seq >= sent.seq) {"), webPkg, webBehaviour},
	{"session: a retry is another save", one(webActions, "  if (!n.inflight) {\n    const saveId", "  if (n.inflight) n.inflight = null;\n  if (!n.inflight) {\n    const saveId"), webPkg, webBehaviour},
	{"session: the draft forgets its base", one(webInput, "if (d.base.version === file.version && d.base.rev === file.rev) return", "if (d.base.version <= file.version) return"), webPkg, webBehaviour},
	{"session: the draft forgets the save in flight", one(webActions, "...(sent && { inflight:", "...(sent && !sent && { inflight:"), webPkg, webBehaviour},
	{"session: an own save is a conflict", one(webInput, `s.mine.includes(a.current.saveId) ? "ownConflict"`, `s.mine.includes(a.current.saveId + "?") ? "ownConflict"`), webPkg, webBehaviour},
	{"session: the same content is a conflict", one(webInput, `if (same(cx, read.content, s.local)) return { input: "theirsSame"`, `if (s.seq < 0) return { input: "theirsSame"`), webPkg, webBehaviour},
	{"session: another rev is the same version", one(webInput, "d.base.version === file.version && d.base.rev === file.rev", "d.base.version === file.version"), webPkg, webBehaviour},
	{"session: edits in conflict are saved", one(webTable, `[["conflict"], "edit", "conflict", "edit"]`, `[["conflict"], "edit", "dirty", "edit"]`), webPkg, webBehaviour},
	{"session: a save leaves before its draft", one(webActions, "  if (n.slot.stale) write(n, cx, out);\n", ""), webPkg, webBehaviour},
	{"session: newer edits keep the older base", one(webActions, "    n.saved = sent.seq;\n    n.slot.stale = true;\n", "    n.saved = sent.seq;\n"), webPkg, webBehaviour},
	{"session: unsaved edits wait for no slot", one(webCore, `    out.push({ do: "set", timer: "draft" });`+"\n", ""), webPkg, webRandom},
	{"session: any resolution is taken", one(webInput, `s.theirs && s.theirs.version === e.theirs.version && s.theirs.rev === e.theirs.rev ? "resolved"`, `s.theirs ? "resolved"`), webPkg, webBehaviour},
	{"session: an older read is taken", one(webInput, "!read || read.file.version < s.base!.version ||", "!read ||"), webPkg, webBehaviour},
	{"session: a slot that was cleared stays so", one(webCore, `  if (e.type === "slotLost") n.slot.stale = true;`+"\n", ""), webPkg, webBehaviour},
	{"session: a page that goes writes nothing", one(webCore, `e.type === "hide" || `, ""), webPkg, webBehaviour},
	{"session: an answer of another version", one(webInput, "data.file.version === sent.expectedVersion + 1 && ", ""), webPkg, webBehaviour},
	{"session: a page is an answer", one(webJudge, `if (!/^application\/json\s*(;|$)/i.test(reply.type ?? "")) return undefined;`, ""), webPkg, webBehaviour},
	{"session: half a merge", one(webRecord, "if (iChanged && theyChanged && !equal(y, z))", "if (iChanged && theyChanged && false)"), webPkg, webBehaviour},

	// The adapters.
	{"session: no lock of the writer", one(webWriter, "const release = await hold(env, kept);\n    if (release) return", "const release = (await hold(env, kept)) ?? (() => undefined);\n    if (release) return"), webPkg, webBehaviour},
	{"session: a later edit's slot is deleted", one(webDrafts, "(slot?.draft && slot.draft.seq > seq)", "(slot?.draft && slot.draft.seq < 0)"), webPkg, webBehaviour},
	{"session: an unreadable slot is deleted", one(webDrafts, "if (slot?.unreadable || ", "if ("), webPkg, webBehaviour},
	{"session: drafts of all users", one(webDrafts, `this.mine = prefix + encodeURIComponent(user) + "/";`, `this.mine = prefix + user + "/";`), webPkg, webBehaviour},
	{"session: the bundle is stale", one(webJudge, "45_000", "45_001"), webPkg, "Bundle_TheCommitted"},

	// Hints.
	{"desk: hints of everybody's files", one(deskLookGo, "where f.owner = @owner::text and", "where @owner::text is not null and"), deskPkg, "Events_TellOf"},
	{"desk: a stream ends with the time to write", one(deskEventsGo, "	_ = out.SetWriteDeadline(time.Now().Add(eventsLife + time.Minute))\n", ""), deskPkg, "Events_Outlive"},
	{"desk: streams outlive the server", one(deskEventsGo, "		case <-h.closing:\n			return nil\n", ""), deskPkg, "Events_EndWith"},
}
