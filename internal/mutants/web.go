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
	webHTTP      = "web/session/http.ts"
	webSession   = "web/session/session.ts"
	webKept      = "web/session/kept.ts"
	webSiblings  = "web/session/siblings.ts"
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
	{"session: a success of an older edit is one of all", one(webInput, `s.seq === seq ? "saved"`, `s.seq >= seq ? "saved"`), webPkg, webBehaviour},
	{"session: a success settles newer edits", one(webActions, "if (n.seq === seq) return", "if (n.seq >= seq) return"), webPkg, webBehaviour},
	{"session: a retry is another save", one(webActions, "  if (!n.inflight) {\n    prepare", "  if (n.inflight) n.inflight = null;\n  if (!n.inflight) {\n    prepare"), webPkg, webBehaviour},
	{"session: the draft forgets its base", one(webInput, "if (isAt(d.base, file) || ", "if (d.base.version <= file.version || "), webPkg, webBehaviour},
	{"session: the draft forgets the save in flight", one(webActions, "hash: hashOf(content), inflight, adoptedFrom", "hash: hashOf(content), inflight: inflight && undefined, adoptedFrom"), webPkg, webBehaviour},
	{"session: an own save is a conflict", one(webInput, `s.mine.includes(a.current!.saveId) ? "ownConflict"`, `s.mine.includes(a.current!.saveId + "?") ? "ownConflict"`), webPkg, webBehaviour},
	{"session: the same content is a conflict", one(webInput, `if (same(cx.kind, read.content, s.local as C)) return "theirsSame"`, `if (s.seq < 0) return "theirsSame"`), webPkg, webBehaviour},
	{"session: another rev is the same version", one(webInput, "v.version === other.version && v.rev === other.rev", "v.version === other.version"), webPkg, webBehaviour},
	{"session: edits in conflict are saved", one(webTable, "  conflict: {\n    ...edits,", "  conflict: {\n    edit: [does.edit, \"dirty\"],"), webPkg, webBehaviour},
	{"session: a save leaves before its draft", one(webActions, "  if (n.stale) write(n, t);\n", ""), webPkg, webBehaviour},
	{"session: newer edits keep the older base", one(webActions, "  n.saved = seq;\n  n.stale = true;\n", "  n.saved = seq;\n"), webPkg, webBehaviour},
	{"session: unsaved edits wait for no slot", one(webCore, `    t.out.push({ do: "set", timer: "draft" });`+"\n", ""), webPkg, webRandom},
	{"session: any resolution is taken", one(webInput, `theirs && isAt(theirs, e.theirs) ? "resolved"`, `theirs ? "resolved"`), webPkg, webBehaviour},
	{"session: an older read is taken", one(webInput, "!read || read.file.version < s.base!.version ||", "!read ||"), webPkg, webBehaviour},
	{"session: a slot that was cleared stays so", one(webCore, "(slotLost|resume)", "(resume)"), webPkg, webBehaviour},
	{"session: what changes nothing is a change", one(webCore, "[changed ? n : s, out]", "[changed ? n : { ...s }, out]"), webPkg, webBehaviour + "/what_changes_nothing"},
	{"session: a page that comes back trusts its slot", one(webCore, "(slotLost|resume)", "(slotLost)"), webPkg, webBehaviour},
	{"session: a page that goes writes nothing", one(webCore, "hide|slotLost", "slotLost"), webPkg, webBehaviour},
	{"session: an answer of another version", one(webInput, "file.version === expectedVersion + 1 && ", ""), webPkg, webBehaviour},
	{"session: a page is an answer", one(webJudge, `/^application\/json\s*(;|$)/i.test(type ?? "")`, "true"), webPkg, webBehaviour},
	{"session: an answer without data stops all", one(webInput, "(a.data ?? {}) as { file", "a.data as { file"), webPkg, webBehaviour},
	{"session: a probe may tell any version", one(webInput, "committed !== inflight!.expectedVersion + 1", "!isVersion(committed)"), webPkg, webBehaviour},
	{"session: what a proxy refused was never committed", one(webActions, "  n.mine = sent(n);\n  n.inflight = null;", "  n.inflight = null;"), webPkg, webBehaviour},
	{"session: an older form is sent as the same save", one(webActions, "d.schema === t.cx.kind.schema && ", ""), webPkg, webBehaviour},
	{"session: half a merge", one(webRecord, "if (iChanged && theyChanged && !equal(y, z))", "if (iChanged && theyChanged && false)"), webPkg, webBehaviour},

	// The adapters.
	{"session: no lock of the writer", one(webWriter, "? await hold(env, writer) : null", "? ((await hold(env, writer)) ?? (() => undefined)) : null"), webPkg, webBehaviour},
	{"session: a tab that lives is adopted", one(webKept, "desk.env.locks && !release) return", "desk.env.locks && !desk) return"), webPkg, webBehaviour},
	{"session: what was listed is adopted", one(webSiblings, "(await found(desk, sibling))?.draft", "sibling.draft"), webPkg, webBehaviour},
	{"session: what was not seen is discarded", one(webKept, "?.text === slot.text;", "?.key === slot.key;"), webPkg, webBehaviour},
	{"session: a sibling's slot goes before this one has its work", one(webSiblings, "if (desk.env.locks && holds(session, draft))", "if (desk.env.locks)"), webPkg, webBehaviour},
	{"session: the earlier of two copies counts", one(webDrafts, "x.base.version > y.base.version || ", "x.savedAt > y.savedAt || "), webPkg, webBehaviour},
	{"session: a database that hangs stops all", one(webDrafts, "await Promise.race([mirror.all(from), late])", "await mirror.all(from)"), webPkg, webBehaviour},
	{"session: a draft is of any content", one(webDrafts, "const content = read(d?.content);", "const content = d?.content;"), webPkg, webBehaviour},
	{"session: another kind's work is written over", one(webSession, "slot.draft?.type !== kind.type", "!!slot.unreadable"), webPkg, webBehaviour},
	{"session: a view's mistake stops all", one(webSession, "void Promise.reject(e); //", "throw e; //"), webPkg, webBehaviour},
	{"session: a copy's work is written over", one(webSession, "await find(drafts.foreign);", ""), webPkg, webBehaviour},
	{"session: a second session of one slot", one(webSession, "/^(saving|loading)$/.test(s.phase)) return", "/^(saving)$/.test(s.phase)) return"), webPkg, webBehaviour},
	{"session: what was let go asks on", one(webSession, "    stop();\n    if (desk.known", "    if (desk.known"), webPkg, webBehaviour},
	{"session: a later edit's slot is deleted", one(webDrafts, "later! > seq", "later! < 0"), webPkg, webBehaviour},
	{"session: a large body is cut within a character", one(webHTTP, "end++; //", "end += 0; //"), webPkg, webBehaviour},
	{"session: what another wrote is not read before it is deleted", one(webDrafts, "text === own?.text ? null", "own ? null"), webPkg, webBehaviour},
	{"session: a key of others stops all", one(webDrafts, "attempt(() => key.slice(mine.length).split(\"/\").map(decodeURIComponent)) ?? []", "key.slice(mine.length).split(\"/\").map(decodeURIComponent)"), webPkg, webBehaviour},
	{"session: an unreadable slot is deleted", one(webDrafts, "if (!slot?.unreadable && ", "if ("), webPkg, webBehaviour},
	{"session: drafts of all users", one(webDrafts, `const mine = "weir.draft/" + encodeURIComponent(user) + "/";`, `const mine = "weir.draft/" + user + "/";`), webPkg, webBehaviour},
	{"session: the bundle is stale", one(webJudge, "45_000", "45_001"), webPkg, "Bundle_TheCommitted"},

	// Hints.
	{"desk: hints of everybody's files", one(deskLookGo, "where f.owner = @owner::text and", "where @owner::text is not null and"), deskPkg, "Events_TellOf"},
	{"desk: a stream ends with the time to write", one(deskEventsGo, "	_ = out.SetWriteDeadline(time.Now().Add(eventsLife + time.Minute))\n", ""), deskPkg, "Events_Outlive"},
	{"desk: streams outlive the server", one(deskEventsGo, "		case <-h.closing:\n			return nil\n", ""), deskPkg, "Events_EndWith"},
}
