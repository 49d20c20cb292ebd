package main

const (
	emailPkg      = "./workers/channel/email"
	emailGo       = "workers/channel/email/channel.go"
	emailDialGo   = "workers/channel/email/dial.go"
	emailAuthGo   = "workers/channel/email/auth.go"
	emailLinkGo   = "workers/channel/email/link.go"
	emailWireGo   = "workers/channel/email/wire.go"
	emailPoolGo   = "workers/channel/email/pool.go"
	emailJudgeGo  = "workers/channel/email/failure.go"
	emailClassGo  = "workers/channel/email/classify.go"
	emailMailGo   = "workers/channel/email/message.go"
	emailWordGo   = "workers/channel/email/subject.go"
	emailConfigGo = "workers/channel/email/config.go"
)

func init() { mutants = append(mutants, emailMutants...) }

var emailMutants = []mutant{
	// Whether the mail was taken.
	{"mail: an unknown outcome is not sent", one(emailJudgeGo, "if f.dotSent {", "if f.dotSent && ctx == nil {"), emailPkg, "Silence|Reset|WhetherTheDot"},
	{"mail: a dot that never left is unknown", one(emailLinkGo, "l.wire.written > before", "before >= 0"), emailPkg, "WhetherTheDot"},
	{"mail: half a dot did not leave", one(emailLinkGo, "l.wire.written > before", "l.wire.written > before+1000000"), emailPkg, "WhetherTheDot"},
	{"mail: the dot after the context's end", one(emailLinkGo, "if err := ctx.Err(); err != nil {", "if err := ctx.Err(); err != nil && l == nil {"), emailPkg, "Deliver_SendsNoDot"},
	{"mail: half a line is an answer", one(emailLinkGo, "if l.wire.readErr != nil && !l.wholeLine() {", "if l.wire.readErr != nil && l == nil {"), emailPkg, "TheBoundIs"},
	{"mail: a goodbye takes the 250 back", one(emailLinkGo, "if l.wire.readErr != nil && !l.wholeLine() {", "if l.wire.readErr != nil {"), emailPkg, "HalfATLSGoodbye"},
	{"mail: answers without questions", one(emailLinkGo, "if l.client.Text.R.Buffered() > 0 {", "if l.client.Text.R.Buffered() < 0 {"), emailPkg, "UnaskedAnswer"},
	{"mail: an idle link that said too much", one(emailLinkGo, "return stop() && err == nil && l.quiet() == nil", "return stop() && err == nil"), emailPkg, "ReplacesAnIdle"},
	{"mail: only 250 is success", one(emailLinkGo, "reply.Code/100 == 2 {", "reply.Code == 250 {"), emailPkg, "AnyTwoHundred"},

	// The bound.
	{"mail: no SendTimeout", one(emailGo, "context.WithTimeoutCause(ctx, c.cfg.SendTimeout, errSendTimeout)", "context.WithTimeoutCause(ctx, 8*c.cfg.SendTimeout, errSendTimeout)"), emailPkg, "TheBoundIs"},
	{"mail: no DialTimeout", one(emailDialGo, "context.WithTimeout(ctx, d.cfg.DialTimeout)", "context.WithCancel(ctx)"), emailPkg, "DialHasABound"},
	{"mail: a stuck link is not reset", one(emailWireGo, "_ = tcp.SetLinger(0)", "_ = tcp"), emailPkg, "StuckLink"},
	{"mail: endless replies", one(emailWireGo, "if w.allowance <= 0 {", "if w.allowance < -1<<40 {"), emailPkg, "FloodOfReply"},
	{"mail: the allowance is for the connection", one(emailLinkGo, "l.wire.allowance = maxReplyBytes\n	stop :=", "stop :="), emailPkg, "Talkative"},
	{"mail: a goodbye without a bound", one(emailLinkGo, "time.AfterFunc(timeout, l.wire.drop)", "time.AfterFunc(6*timeout, l.wire.drop)"), emailPkg, "NothingAfter"},
	{"mail: a Send longer than the step", one(emailConfigGo, "StepTime-c.SendTimeout-1", "StepTime"), emailPkg, "SendEndsBefore"},

	// Connections.
	{"mail: a dead idle link is used", one(emailGo, "if l.probe(ctx, c.cfg.DialTimeout) {", "if l.probe(ctx, c.cfg.DialTimeout); true {"), emailPkg, "ReplacesAnIdle"},
	{"mail: a dead idle link stays open", one(emailGo, "		l.wire.drop()\n	}\n	return c.dialer", "	}\n	return c.dialer"), emailPkg, "ReplacesAnIdle"},
	{"mail: a failed link is kept", one(emailGo, "giveBack = func() { c.pool.discard(l) }", "giveBack = func() { c.pool.keep(l) }"), emailPkg, "LateAnswer"},
	{"mail: a refused link is kept", one(emailGo, "giveBack = func() { c.pool.leave(l) }", "giveBack = func() { c.pool.keep(l) }"), emailPkg, "NotUsedAfterAnError"},
	{"mail: QUIT on any link", one(emailGo, "if unharmed && f.orderly() {", "if unharmed {"), emailPkg, "UnaskedAnswer"},
	{"mail: QUIT after 421", one(emailJudgeGo, "ok && reply.code != 421", "ok && reply.code > 0"), emailPkg, "GoodbyeAfter"},
	{"mail: a discarded link keeps its slot", one(emailPoolGo, "	l.wire.drop()\n	p.release()\n}\n\n// expire", "	l.wire.drop()\n}\n\n// expire"), emailPkg, "FailuresGive"},
	{"mail: a failed dial stays open", one(emailDialGo, "if l == nil { // after", "if l != nil { // after"), emailPkg, "PanicGives"},
	{"mail: more idle links than wanted", one(emailPoolGo, "len(p.idle) >= p.maxIdle || ", ""), emailPkg, "KeepsNoMore"},
	{"mail: a link lives for ever", one(emailPoolGo, " || l.mails >= maxMailsPerLink", ""), emailPkg, "AfterManyMails"},
	{"mail: idle links do not expire", one(emailPoolGo, "func() { p.expire(l) }", "func() {}"), emailPkg, "IdleConnectionsExpire"},
	{"mail: the slot is free before the goodbye", one(emailPoolGo, "		p.goodbye(l)\n		p.release()\n	})\n}\n\n// discard", "		p.release()\n		p.goodbye(l)\n	})\n}\n\n// discard"), emailPkg, "NeverMore"},
	{"mail: waits for ever for a slot", one(emailPoolGo, "	case <-timer.C:\n		return errBusy\n", ""), emailPkg, "BusyIs"},
	{"mail: an ended context takes a slot", one(emailPoolGo, "	if ctx.Err() != nil {\n		return context.Cause(ctx)\n	}\n", ""), emailPkg, "EndedContext"},
	{"mail: Close does not wait", one(emailPoolGo, "	p.goodbyes.Wait()\n", ""), emailPkg, ""},
	{"mail: kept after Close", one(emailPoolGo, "if p.closed || len", "if len"), emailPkg, "CloseLets"},

	// What a failure means.
	{"mail: 421 is temporary", one(emailClassGo, "r.code == 421 || ", ""), emailPkg, "Classify"},
	{"mail: the enhanced code of another class", one(emailClassGo, "|| parts[0] != fmt.Sprint(code/100) {", "{"), emailPkg, "ErrorCode"},
	{"mail: a full mailbox is refused", one(emailClassGo, `case r.enhanced == "5.2.2":`, `case r.enhanced == "5.2.2" && at == "":`), emailPkg, "Classify"},
	{"mail: a refused sender kills the backlog", one(emailClassGo, "		return channel.ClassMisconfigured\n	case at != stageRcpt", "		return channel.ClassRefused\n	case at != stageRcpt"), emailPkg, "Classify"},
	{"mail: a refusal before MAIL kills the backlog", one(emailClassGo, "case at != stageRcpt && at != stageData && at != stageAnswer:", "case at == \"\":"), emailPkg, "Classify"},
	{"mail: a cancelled handshake is a wrong setting", one(emailJudgeGo, "if ctx.Err() == nil {\n		if code", "if ctx != nil {\n		if code"), emailPkg, "ContextThatEndsInTheHandshake"},
	{"mail: prose in the code", one(emailJudgeGo, "if isEnhanced(first, err.Code) {", "if first != \"\" {"), emailPkg, "ErrorCode"},
	{"mail: replies are stored as they come", one(emailJudgeGo, "r.code, clean(r.text))", "r.code, r.text)"), emailPkg, "FitToBeStored"},
	{"mail: garbage is stored as it comes", one(emailJudgeGo, "	case isProtocol(f.err):\n		return fmt.Errorf(\"email: %s: %s\", f.stage, clean(f.err.Error()))\n", ""), emailPkg, "FitToBeStored|Flood"},

	// Secrets.
	{"mail: a reply to AUTH is stored", one(emailJudgeGo, "	if f.stage == stageAuth {\n", "	if f.stage == \"\" {\n"), emailPkg, "NeverHoldThePassword"},
	{"mail: garbage to AUTH is stored", one(emailJudgeGo, "case f.stage == stageAuth && !isNetwork(f.err) && !errors.Is(f.err, errNoAuth):", "case f.stage == \"\":"), emailPkg, "NeverHoldThePassword"},
	{"mail: goes on without STARTTLS", one(emailDialGo, "return nil, &failure{stage: stageTLS, err: errNoStartTLS}", "return client, nil"), emailPkg, "NothingInTheClear"},
	{"mail: any certificate will do", one(emailDialGo, "t.ServerName = cfg.Host", "t.ServerName, t.InsecureSkipVerify = cfg.Host, true"), emailPkg, "SettingsOfTLS"},
	{"mail: old TLS", one(emailDialGo, "t.MinVersion = max(t.MinVersion, tls.VersionTLS12)", "_ = t"), emailPkg, "Config_TLS"},
	{"mail: a password in the clear", one(emailAuthGo, "	default:\n		order = []mechanism{cram}", "	default:\n		order = []mechanism{cram, plain}"), emailPkg, "ChooseAuth"},

	// The mail.
	{"mail: another boundary each time", one(emailMailGo, "mail.WithBoundary(boundary(m))", `mail.WithBoundary("")`), emailPkg, "TheSameMessage"},
	{"mail: the date is now", one(emailMailGo, "	msg.SetDateWithValue(m.CreatedAt.UTC())\n", ""), emailPkg, "TheSameMessage"},
	{"mail: the date is local", one(emailMailGo, "m.CreatedAt.UTC()", "m.CreatedAt"), emailPkg, "TheSameMessage|Silence"},
	{"mail: a header in the address", one(emailMailGo, `if strings.ContainsAny(address, "\r\n\x00") {`, `if strings.ContainsAny(address, "") {`), emailPkg, "BeforeDialing"},
	{"mail: a header in the subject", one(emailMailGo, `if strings.ContainsAny(m.Subject, "\r\n\x00") {`, `if strings.ContainsAny(m.Subject, "") {`), emailPkg, "BeforeDialing"},
	{"mail: NUL in a text", one(emailMailGo, ` || strings.Contains(field.value, "\x00")`, ""), emailPkg, "BeforeDialing"},
	{"mail: any run id", one(emailMailGo, "|| !isRunID(m.RunID)", `|| isRunID("")`), emailPkg, "BeforeDialing"},
	{"mail: an LF after a bare CR is lost", one(emailMailGo, "return lineBreaks.Replace(s) }", "return s[:len(lineBreaks.Replace(s))*0] + s }"), emailPkg, "ReceivedEqualsSent"},
	{"mail: the subject as it comes", one(emailMailGo, "encodeSubject(m.Subject)", "m.Subject"), emailPkg, "ReceivedEqualsSent"},
	{"mail: a character cut in two", one(emailWordGo, "!utf8.RuneStart(s[n])", "!utf8.RuneStart(s[n]) && n < 0"), emailPkg, "EncodeSubject"},
	{"mail: SMTPUTF8 that nobody needs", one(emailDialGo, "client.SkipSMTPUTF8(true)", "client.SkipSMTPUTF8(false)"), emailPkg, "AsksForNothing"},
}
