package receipts

// session is what a step's SQL may have changed of its session, by a function or otherwise, and what the next user of
// the connection would suffer from. It is not all that there is: settings of an application's own, advisory locks and
// LISTEN cannot be seen at this price.
const session = `pg_catalog.concat_ws('|', pg_catalog.current_setting('session_authorization'), pg_catalog.current_setting('role'),
    pg_catalog.current_setting('search_path'), pg_catalog.current_setting('TimeZone'), pg_catalog.current_setting('DateStyle'),
    pg_catalog.current_setting('statement_timeout'), pg_catalog.current_setting('lock_timeout'),
    pg_catalog.current_setting('idle_in_transaction_session_timeout'), pg_catalog.current_setting('default_transaction_read_only'),
    pg_catalog.current_setting('default_transaction_isolation'), pg_catalog.current_setting('row_security'),
    pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('session_replication_role'),
    pg_catalog.current_setting('standard_conforming_strings'), pg_catalog.pg_my_temp_schema())`

const (
	// NoteSession is an expression that notes how the session is, for the transaction alone.
	NoteSession = `pg_catalog.set_config('weir.session', ` + session + `, true)`
	// SameSession says whether it is still like that. It errs to no after a SET LOCAL.
	SameSession = `coalesce(` + session + ` operator(pg_catalog.=) pg_catalog.current_setting('weir.session', true), false)`
)
