-- What the drill installs, and only the drill: every change of run, receipt and effect is appended to history, in the
-- transaction that makes it. Changes of one run are ordered by seq, since each transaction holds the run's lock; the
-- transaction id ties receipts and effects to the change of the run that fenced them.
create schema weir_drill;

create table weir_drill.history (
    seq         bigint generated always as identity primary key,
    at          timestamptz not null default clock_timestamp(),
    xid         xid8        not null default pg_current_xact_id(),
    backend     integer     not null default pg_backend_pid(),
    worker      text        not null default coalesce(current_setting('weir_drill.worker', true), ''),
    what        text        not null, -- run, receipt, effect
    op          text        not null, -- INSERT, UPDATE, DELETE
    run_id      uuid        not null,
    step        integer,
    attempt     bigint,
    old_attempt bigint,
    state       text,                 -- a run's status, a receipt's outcome
    old_state   text,
    lease       timestamptz,
    old_lease   timestamptz,
    deadline    timestamptz,
    old_deadline timestamptz,
    reaps       integer,
    finished    boolean,
    old_finished boolean,
    -- what may not change once a run is terminal
    result      text
);

-- Effects of the drill's own kind in the database. No key: a second one must be able to get in, to be seen.
create table weir_drill.effect (
    run_id  uuid   not null,
    step    integer not null,
    attempt bigint not null
);

-- What workers were refused.
create table weir_drill.refusal (
    at      timestamptz not null default clock_timestamp(),
    worker  text        not null,
    run_id  uuid        not null,
    attempt bigint      not null,
    write   text        not null
);

-- Their heartbeats that came to nothing.
create table weir_drill.late_beat (
    worker  text        not null,
    at      timestamptz not null
);

-- What was asked for, in the transaction that asked.
create table weir_drill.asked (
    run_id uuid not null primary key,
    kind   text not null,
    n      bigint not null
);

create function weir_drill.note_run() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
begin
    if tg_op = 'DELETE' then
        insert into weir_drill.history (what, op, run_id, old_attempt, old_state) values ('run', tg_op, old.id, old.attempt, old.status);
        return null;
    end if;
    insert into weir_drill.history (what, op, run_id, attempt, old_attempt, state, old_state, lease, old_lease, deadline, old_deadline,
        reaps, finished, old_finished, result)
    values ('run', tg_op, new.id, new.attempt, case when tg_op = 'UPDATE' then old.attempt end,
        new.status, case when tg_op = 'UPDATE' then old.status end,
        new.lease_expires_at, case when tg_op = 'UPDATE' then old.lease_expires_at end,
        new.step_deadline_at, case when tg_op = 'UPDATE' then old.step_deadline_at end,
        new.reaps, new.finished_at is not null, case when tg_op = 'UPDATE' then old.finished_at is not null end,
        case when new.finished_at is not null then
            concat_ws('|', new.status, new.attempt, new.failures, new.finished_at, new.error_code, new.external_ref, md5(new.output::text)) end);
    -- While a delivery goes well its run is the receipt, too.
    if new.kind = 'delivery' and new.status in ('processing', 'sent') and (tg_op = 'INSERT' or new.status <> old.status)
        and not 'many_steps' = any(new.needs) and not exists (select from weir.receipt where run_id = new.id) then
        insert into weir_drill.history (what, op, run_id, step, attempt, state)
        values ('receipt', 'INSERT', new.id, 0, new.attempt, case new.status when 'sent' then 'ok' else 'started' end);
    end if;
    return null;
end
$$;

create function weir_drill.note_receipt() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
begin
    if tg_op = 'DELETE' then
        insert into weir_drill.history (what, op, run_id, step, old_attempt, old_state)
        values ('receipt', tg_op, old.run_id, old.step_index, old.attempt, old.outcome);
        return null;
    end if;
    insert into weir_drill.history (what, op, run_id, step, attempt, old_attempt, state, old_state)
    values ('receipt', tg_op, new.run_id, new.step_index, new.attempt, case when tg_op = 'UPDATE' then old.attempt end,
        new.outcome, case when tg_op = 'UPDATE' then old.outcome end);
    return null;
end
$$;

create function weir_drill.note_effect() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
begin
    insert into weir_drill.history (what, op, run_id, step, attempt) values ('effect', tg_op, new.run_id, new.step, new.attempt);
    return null;
end
$$;

create trigger weir_drill_notes after insert or update or delete on weir.run for each row execute function weir_drill.note_run();
create trigger weir_drill_notes after insert or update or delete on weir.receipt for each row execute function weir_drill.note_receipt();
create trigger weir_drill_notes after insert on weir_drill.effect for each row execute function weir_drill.note_effect();
