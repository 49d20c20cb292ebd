package main

const (
	postgresPkg   = "./internal/postgres"
	pgtestPkg     = "./internal/postgres/pgtest"
	migrationsPkg = "./migrations"

	accountGo    = "internal/postgres/account.go"
	binariesGo   = "internal/postgres/binaries.go"
	clusterGo    = "internal/postgres/cluster.go"
	stateGo      = "internal/postgres/state.go"
	watcherGo    = "internal/postgres/watcher.go"
	serverGo     = "internal/postgres/server.go"
	ephemeralGo  = "internal/postgres/ephemeral.go"
	lockGo       = "internal/postgres/lock.go"
	processGo    = "internal/postgres/pgtest/process.go"
	templateGo   = "internal/postgres/pgtest/template.go"
	pgtestGo     = "internal/postgres/pgtest/pgtest.go"
	connectGo    = "migrations/connect.go"
	sessionGo    = "migrations/session.go"
	migrationsGo = "migrations/migrations.go"
	statusGo     = "migrations/status.go"
)

func init() { mutants = append(mutants, postgresMutants...) }

var postgresMutants = []mutant{
	// The private PostgreSQL: where its programs are and who runs them.
	{"postgres: PG_BIN is a hint", one(binariesGo, "return \"\", fmt.Errorf(\"%w: PG_BIN is %q, but there is no program %s in it\", ErrNoBinaries, dir, missing)", "_ = dir"), postgresPkg, "FindBinaries_NeverLooks"},
	{"postgres: the oldest package", one(binariesGo, "slices.MaxFunc(found", "slices.MinFunc(found"), postgresPkg, "FindBinaries_Prefers"},
	{"postgres: any version", one(binariesGo, "if major < MinMajor {", "if major < 0 {"), postgresPkg, "RefusesAnOldVersion"},
	{"postgres: somebody else's directory", one(accountGo, "return fmt.Errorf(\"%s belongs to somebody else than user %s\", dir, a.name)", ""), postgresPkg, "Mkdir_Refuses"},
	{"postgres: the server in the caller's session", one(accountGo, "Setsid: true", "Setsid: false"), postgresPkg, "CtrlC"},
	{"postgres: a long socket path", one(clusterGo, ">= maxSocketPath {", ">= 10*maxSocketPath {"), postgresPkg, "TheSocketsPath"},

	// Sharing it.
	{"postgres: everybody stops the server", one(serverGo, "if err == nil && alone {", "if err == nil || alone {"), postgresPkg, "TwoProcessesShare"},
	{"postgres: nobody stops the server", one(serverGo, "if err == nil && alone {", "if false && alone {"), postgresPkg, "TwoProcessesShare"},
	{"postgres: no gate", one(serverGo, "if err := s.gate.take(ctx, syscall.LOCK_EX); err != nil {\n\t\treturn nil, err", "if err := ctx.Err(); err != nil {\n\t\treturn nil, err"), postgresPkg, "ManyProcessesAtOnce"},
	{"postgres: no watcher", one(watcherGo, "cmd.Run(); err != nil", "ctx.Err(); err != nil && cmd != nil"), postgresPkg, "LastUserIsKilled"},
	{"postgres: the watcher stops what is in use", one(watcherGo, "if flock -n -x 7; then", "if true; then"), postgresPkg, "WhoComesWhile|LastUserIsKilled"},
	{"postgres: closed twice", one(serverGo, "if s.closed {", "if false {"), postgresPkg, "Close_CanBe"},
	{"postgres: a lock that outlasts its context", one(lockGo, "if err := pause(ctx, lockPoll)", "if err := pause(context.WithoutCancel(ctx), lockPoll)"), postgresPkg, "EndsWithItsContext"},

	// Recovering it.
	{"postgres: a half-made cluster", one(clusterGo, "dir, err := os.MkdirTemp(c.dir, \"data.new\")", "dir, err := c.data(), os.Mkdir(c.data(), 0o700)"), postgresPkg, "StarterWasKilled"},
	{"postgres: leftovers of initdb", one(clusterGo, "for _, dir := range leftovers {", "for _, dir := range leftovers[:0] {"), postgresPkg, "StarterWasKilled"},
	{"postgres: orphans live on", one(clusterGo, "if len(pids) == 0 {", "if true || len(pids) == 0 {"), postgresPkg, "OutlivedTheirServer"},
	{"postgres: a shell is taken for an orphan", one(stateGo, `return err == nil && strings.TrimSpace(string(program)) == "postgres"`, "return err == nil && len(program) > 0"), postgresPkg, "LeavesOtherPrograms"},
	{"postgres: the watcher signals a stranger", one(watcherGo, `= "$1/data" ]; then`, `!= "" ]; then`), postgresPkg, "WatcherLeaves"},
	{"postgres: stale files stay", one(clusterGo, "for _, path := range append(remains, c.pidFile()) {", "for _, path := range append(remains, c.pidFile())[:0] {"), postgresPkg, "IsNotMisled"},
	{"postgres: durable data thrown away", one(clusterGo, "if c.durable || rebuilt {", "if rebuilt {"), postgresPkg, "MakesABroken"},
	{"postgres: a broken cluster stays", one(clusterGo, "if c.durable || rebuilt {", "if !rebuilt {"), postgresPkg, "MakesABroken"},
	{"postgres: an ephemeral cluster stays", one(serverGo, "err = errors.Join(s.cluster.stop(ctx, Immediate), os.RemoveAll(s.cluster.dir))", "err = s.cluster.stop(ctx, Immediate)"), postgresPkg, "Ephemeral_IsGoneAfter"},
	{"postgres: an orphaned ephemeral cluster stays", one(watcherGo, "mode, remove = Immediate, c.dir", "mode, remove = Immediate, \"\""), postgresPkg, "Ephemeral_IsGoneWhen"},
	{"postgres: a young ephemeral cluster is swept", one(ephemeralGo, "time.Since(info.ModTime()) < startTimeout", "time.Since(info.ModTime()) < 0"), postgresPkg, "Ephemeral_OneThat"},
	{"postgres: a used ephemeral cluster is swept", one(ephemeralGo, "if alone, _ := users.try(syscall.LOCK_EX); alone {", "if alone := true; alone {"), postgresPkg, "Ephemeral_OneThat"},

	// A database for each test.
	{"pgtest: databases of the living are dropped", one(processGo, "if !other || !p.dead(id) {", "if !other {"), pgtestPkg, "KilledProcesses"},
	{"pgtest: databases of the dead stay", one(processGo, "if !other || !p.dead(id) {", "if !other || p.dead(id) {"), pgtestPkg, "KilledProcesses"},
	{"pgtest: many make the template", one(processGo, "err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)\n", "err := ctx.Err()\n"), pgtestPkg, "MakeOneTemplate"},
	{"pgtest: an unfinished template is in the way", one(templateGo, "if err := server.DropDatabase(ctx, unfinished); err != nil {", "if err := ctx.Err(); err != nil {"), pgtestPkg, "MakeOneTemplate"},
	{"pgtest: a template that takes connections", one(templateGo, "allow_connections false", "allow_connections true"), pgtestPkg, "MakeOneTemplate"},
	{"pgtest: a lost template stays lost", one(processGo, "p.forgetTemplate(template)\n\t\t\tcontinue", "p.forgetTemplate(template)"), pgtestPkg, "TemplateThatIsGone"},
	{"pgtest: old templates stay", one(templateGo, "time.Since(info.ModTime()) < templateAge", "info != nil"), pgtestPkg, "TemplatesThatNobody"},
	{"pgtest: templates of others go", one(templateGo, "if name == current || (err == nil && time.Since(info.ModTime()) < templateAge) {", "if name == current || (err == nil && info == nil) {"), pgtestPkg, "TemplatesThatNobody"},
	{"pgtest: a test's database stays", one(pgtestGo, "if err := p.server.DropDatabase(ctx, name); err != nil {", "if err := ctx.Err(); err != nil {"), pgtestPkg, "IsClosedAndItsDatabase"},
	{"pgtest: a kept connection is overlooked", one(pgtestGo, "t.Errorf(\"pgtest: %d connections", "t.Logf(\"pgtest: %d connections"), pgtestPkg, "KeepsAConnection"},

	// Migrations.
	{"migrations: migrations without the lock", one(sessionGo, "if err := lock(ctx, conn); err != nil {", "if err := ctx.Err(); err != nil {"), migrationsPkg, "TwentyProcesses|AsLongAs"},
	{"migrations: the lock is waited for", one(sessionGo, `"select pg_try_advisory_lock($1)", lockKey).Scan(&mine)`, `"select pg_try_advisory_lock_shared(0), pg_advisory_lock($1)", lockKey).Scan(&mine, nil)`), migrationsPkg, "BuiltConcurrently"},
	{"migrations: the lock stays", one(sessionGo, "defer func() { err = errors.Join(err, hangUp(ctx, conn)) }()\n\tif err := lock", "if err := lock"), migrationsPkg, "OnEveryPath"},
	{"migrations: the lock is lost to an idle timeout", one(connectGo, `config.ConnConfig.RuntimeParams["idle_session_timeout"] = "0"`, ""), migrationsPkg, "IdleSession"},
	{"migrations: a pooler that drops settings", one(connectGo, "if err == nil && !direct {", "if false && !direct {"), migrationsPkg, "DropsSettings"},
	{"migrations: a pooler that refuses settings", one(connectGo, `refused.Code == "08P01" &&`, "false &&"), migrationsPkg, "RefusesSettings"},
	{"migrations: read-only is not explained", one(connectGo, `case refused.Code == "25006":`, "case false:"), migrationsPkg, "ReadOnly"},
	{"migrations: starting is not explained", one(connectGo, `case refused.Code == "57P03":`, "case false:"), migrationsPkg, "IsStarting"},
	{"migrations: too old is not explained", one(connectGo, `case refused.Code == "42704" && connecting:`, "case false:"), migrationsPkg, "TooOld"},
	{"migrations: no server is not explained", one(connectGo, "case connecting:", "case false:"), migrationsPkg, "WithoutAServer"},
	{"migrations: schemas are created again", one(sessionGo, "if err == nil && !exists {", "if err == nil {"), migrationsPkg, "NeedsNoRight|Idempotent"},
	{"migrations: down goes on to River", one(migrationsGo, "there is nothing to roll back\")\n\t\t\treturn nil", "there is nothing to roll back\")\n\t\t\t_, err = s.migrateRiver(ctx, opts.Logger, rivermigrate.DirectionDown, nil)\n\t\t\treturn err"), migrationsPkg, "NeverRivers"},
	{"migrations: down makes tables", one(migrationsGo, "if exists {\n\t\t\tresult, err = s.weir.Down", "if err := s.createSchema(ctx, \"weir\"); err != nil {\n\t\t\treturn err\n\t\t}\n\t\tif true {\n\t\t\tresult, err = s.weir.Down"), migrationsPkg, "OnAnEmptyDatabase"},
	{"migrations: down all takes what is not ours", one(migrationsGo, "drop schema weir\"", "drop schema weir cascade\""), migrationsPkg, "KeepsWhatIsNotWeirs"},
	{"migrations: down all leaves the schema", one(migrationsGo, "; drop schema weir\"", "\""), migrationsPkg, "LeavesNothing"},
	{"migrations: a newer migration is not explained", one(migrationsGo, "return ErrNewer\n", "return err\n"), migrationsPkg, "DoesNotKnow"},
	{"migrations: status shows other lines", one(statusGo, " where coalesce(to_jsonb(m)->>'line', 'main') = 'main'", ""), migrationsPkg, "DoesNotKnow"},
	{"migrations: status hides what it does not know", one(statusGo, "for _, version := range applied {", "for _, version := range applied[:0] {"), migrationsPkg, "DoesNotKnow"},
}
