package main

const (
	deliveryPkg = "./internal/delivery"
	telegramPkg = "./workers/channel/telegram"

	splitGo        = "internal/delivery/split.go"
	partsGo        = "workers/deliveryparts.go"
	telegramGo     = "workers/channel/telegram/channel.go"
	telegramJudge  = "workers/channel/telegram/judge.go"
	telegramPaceGo = "workers/channel/telegram/pace.go"
	telegramWireGo = "workers/channel/telegram/wire.go"
)

func init() { mutants = append(mutants, telegramMutants...) }

var telegramMutants = []mutant{
	// Parts.
	{"parts counted in code points", one(splitGo, "units += max(utf16.RuneLen(r), 1)", "units += min(utf16.RuneLen(r), 1)"), deliveryPkg, "Split_FitsUnderBoth"},
	{"a character is cut", one(splitGo, "if !joined(text, at) {", "if true {"), deliveryPkg, "Split_KeepsTogether"},
	{"the claim starts a run of many steps", one("internal/receipts/claim.go", "where fenced.attempt > 1 and not ` + manySteps + `", "where fenced.attempt > 1"), receiptsPkg, "TestSend_AnotherEffect"},
	{"parts need no worker that knows them", one("internal/delivery/payload.go", "if parts < 2 {", "if parts > 0 {"), "./jobs", "Notify_AProcessThatKnowsNoParts"},
	{"a retry begins anew", one("workers/steps.go", "if r, ok := byIndex[i]; ok && r.Outcome == receipts.OK {", "if r, ok := byIndex[i]; ok && r.Outcome == \"never\" {"), telegramPkg, "Fleet_ARetry"},
	{"parts without started", one(partsGo, "if _, res, stop := t.start(ctx, s); stop {", "if res, stop := (result{}), false; stop {"), telegramPkg, "Fleet_AKilled"},
	{"parts without a settled receipt", one(partsGo, "return t.settle(ctx, s, nil, res.externalRef)", "return result{}, false"), telegramPkg, "Fleet_EachPart"},
	{"a try of all parts", one(partsGo, "if time.Since(began) > w.kind.stepTime {", "if time.Since(began) < 0 {"), "./workers", "Parts_ALongTry"},
	{"a panic outside of its part", one("workers/steps.go", "guarded(s, func() (result, bool) { return do(ctx, i, byIndex[i]) })", "do(ctx, i, byIndex[i])"), "./workers", "Parts_APanic"},
	{"a cancel waits for the last part", one("workers/stepoutside.go", "case err == nil && stood.CancelRequested:", "case err == nil && stood.CancelRequested && k.lease < 0:"), telegramPkg, "Fleet_ACancel"},

	// Telegram.
	{"retry_after is lost", one(telegramJudge, "return channel.Throttled(after(tooMany.RetryAfter), code, text)", "return channel.Throttled(0, code, text)"), telegramPkg, "Send_RetryAfter"},
	{"retry_after overflows", one(telegramGo, "min(max(int64(seconds), 0), most)", "max(int64(seconds), 0)"), telegramPkg, "Send_RetryAfter"},
	{"a 429 is forgotten", one(telegramGo, "c.pace.block(chat, throttled.After)", "_ = chat"), telegramPkg, "Send_AChatThatMustWait"},
	{"all who wait come back at once", one(telegramPaceGo, "t.later = at.Add(p.chatEvery)\n	return max", "return max"), telegramPkg, "Send_AFlood|Send_AChatThat"},
	{"a chat's wait holds many workers", one(telegramPaceGo, "if t.waiting || t.blocked", "if t.blocked"), telegramPkg, "Send_AFlood"},
	{"a moved group is not remembered", one(telegramGo, "c.moved[asked], c.moved[last] = now, now", "_, _ = last, now"), telegramPkg, "Send_FollowsAMoved"},
	{"a migration loop is followed", one(telegramGo, "if moved.to == chat || moved.to == asked {", "if moved.to == \"\" {"), telegramPkg, "Send_AMigrationLoop"},
	{"a lost answer is not sent", one(telegramJudge, "case x.connected.Load():", "case x.connected.Load() && ctx == nil:"), telegramPkg, "Send_OnceConnected"},
	{"a gateway's page is not sent", one(telegramJudge, ", x.status >= 500:", ":"), telegramPkg, "Send_Gateways"},
	{"a second move is an unknown outcome", one(telegramGo, "errors.As(err, &moved) {\n			return channel.Sent{}, c.loops", "errors.As(err, &moved) && asked == \"\" {\n			return channel.Sent{}, c.loops"), telegramPkg, "Send_AMigrationLoop"},
	{"redirects are followed", one(telegramWireGo, "return http.ErrUseLastResponse", "return nil"), telegramPkg, "Send_Gateways"},
	{"taken is sent again", one(telegramGo, "if x.ok {", "if x.ok && msg == nil {"), telegramPkg, "Send_TakenIsTaken"},
	{"the token is in the text", one(telegramWireGo, "text = strings.ReplaceAll(text, token, \"***\")", "_ = token"), telegramPkg, "Send_|New_"},
	{"a kicked bot tries for ever", one(telegramJudge, "case http.StatusBadRequest, http.StatusForbidden,", "case http.StatusBadRequest,"), telegramPkg, "Send_Refusals"},
}
