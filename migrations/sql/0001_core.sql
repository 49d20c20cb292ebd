-- The core tables of Weir. Every statement names the schema: the caller's search_path is not ours to trust.
-- River's own tables stay where River's migrations put them.

-- +goose Up

-- What must be true of a run's row, whoever writes it. Functions, and not one CHECK for each rule: PostgreSQL parses every CHECK
-- of a table anew for every statement that writes to it, which was most of what a single update cost (docs/adr/0012).
-- +goose StatementBegin
create function weir.run_is_whole(kind text, status text, attempt bigint, failures integer, reaps integer, max_failures integer,
    priority smallint, next_attempt_at timestamptz, lease_expires_at timestamptz, lease_owner text, step_deadline_at timestamptz,
    finished_at timestamptz) returns boolean language plpgsql immutable parallel safe as $$
declare
    broken constant text := case
        when attempt < 0 then 'run_attempt_not_negative'
        when failures < 0 or reaps < 0 or max_failures < 1 then 'run_budgets_not_negative'
        when priority not between 1 and 4 then 'run_priority_in_range'
        when char_length(kind) not between 2 and 100 then 'run_kind_length'
        when not case kind
            when 'delivery' then status in ('pending', 'processing', 'sent', 'failed', 'dead')
            when 'plan' then status in ('pending', 'approved', 'rejected', 'expired', 'executing', 'executed', 'failed')
            else status in ('queued', 'running', 'succeeded', 'failed', 'canceled')
        end then 'run_status_of_kind'
        -- Owned, a lease, and next_attempt_at = infinity are one fact.
        when (lease_expires_at is not null) <> (next_attempt_at is not null and next_attempt_at = 'infinity')
            or (lease_expires_at is null) <> (lease_owner is null)
            or (lease_expires_at is null) <> (step_deadline_at is null) then 'run_owned_is_leased'
        when lease_expires_at is not null and status not in ('processing', 'running', 'executing') then 'run_lease_on_ownable'
        when (finished_at is not null) <> (status in ('sent', 'failed', 'dead', 'rejected', 'expired', 'executed', 'succeeded', 'canceled'))
            then 'run_finished_is_terminal'
        when finished_at is not null and next_attempt_at is not null then 'run_terminal_is_not_due'
    end;
begin
    if broken is null then
        return true;
    end if;
    raise exception 'weir.run: a row with kind %, status %, attempt % breaks the rule %', kind, status, attempt, broken
        using errcode = 'check_violation', schema = 'weir', table = 'run', constraint = broken;
end
$$;

create function weir.receipt_is_whole(step_index integer, outcome text, effect text) returns boolean
    language plpgsql immutable parallel safe as $$
declare
    broken constant text := case
        when step_index < 0 then 'receipt_step_index_not_negative'
        when outcome not in ('started', 'ok', 'failed', 'unknown') then 'receipt_outcome_known'
        when effect not in ('transactional', 'idempotent', 'at_least_once', 'reconciled') then 'receipt_effect_known'
    end;
begin
    if broken is null then
        return true;
    end if;
    raise exception 'weir.receipt: a row with step %, outcome %, effect % breaks the rule %', step_index, outcome, effect, broken
        using errcode = 'check_violation', schema = 'weir', table = 'receipt', constraint = broken;
end
$$;
-- +goose StatementEnd

-- Whoever writes a row executes its rules: also where functions are nobody's by default, the tables' privileges are enough.
grant execute on function weir.run_is_whole, weir.receipt_is_whole to public;

-- weir.run is the truth about a run. River's job is only the doorbell that tells the fleet to look here.
--
-- No column of the lease stands in an index's key or predicate, so that a renewal can be a HOT update.
create table weir.run (
    id                    uuid        not null primary key, -- UUIDv7, minted by the enqueuer; the root of every key sent outside
    root_id               uuid        not null,             -- the notification that a delivery belongs to; otherwise the run itself
    attempt               bigint      not null default 0,   -- the fencing token: never repeats, never goes back
    doorbell_id           bigint,                           -- the River job that rings, or that claimed, this run
    doorbell_attempted_at timestamptz,                      -- with doorbell_id, identifies the River attempt that claimed
    next_attempt_at       timestamptz,                      -- when it is due; infinity: owned; null: terminal, or waits for a person
    lease_expires_at      timestamptz,
    step_deadline_at      timestamptz,                      -- set: work has begun, and may take until then
    claimed_at            timestamptz,
    cancel_requested_at   timestamptz,
    created_at            timestamptz not null default clock_timestamp(),
    finished_at           timestamptz,
    failures              integer     not null default 0,
    max_failures          integer     not null,
    reaps                 integer     not null default 0,
    priority              smallint    not null default 1,
    kind                  text        not null,
    status                text        not null,
    queue                 text        not null,
    lease_owner           text,
    exclusive_key         text,
    blocked_reason        text,
    cancel_code           text,
    error_code            text,
    error_message         text,
    external_ref          text,                             -- a delivery's, once it is sent: the provider's id, or the Message-ID
    needs                 text[]      not null default '{}', -- what a worker must offer to claim it: a channel, a list of steps
    tags                  text[]      not null default '{}',
    metadata              jsonb       not null default '{}',
    output                jsonb,

    constraint run_is_whole check (weir.run_is_whole(kind, status, attempt, failures, reaps, max_failures, priority,
        next_attempt_at, lease_expires_at, lease_owner, step_deadline_at, finished_at))
) with (fillfactor = 70);

-- Serves the claim, the sweep and the reaper (owned runs are its infinity end). Its statuses are literals, so that a
-- generic plan can prove it; internal/fencing writes the same list.
create index run_due_idx on weir.run (next_attempt_at, id)
    where status in ('pending', 'queued', 'approved', 'running', 'executing', 'processing');

-- Few rows, often asked for: what went wrong.
create index run_trouble_idx on weir.run (status, id)
    where status in ('failed', 'dead', 'canceled');

create unique index run_exclusive_idx on weir.run (kind, exclusive_key)
    where exclusive_key is not null and status in ('pending', 'queued', 'approved', 'running', 'executing', 'processing');

-- +goose StatementBegin
create function weir.refuse_attempt_going_back() returns trigger language plpgsql as $$
begin
    raise exception 'weir.run %: attempt may not go from % back to %', old.id, old.attempt, new.attempt
        using errcode = 'check_violation', constraint = 'run_attempt_never_goes_back';
end
$$;
-- +goose StatementEnd

create trigger run_attempt_never_goes_back before update of attempt on weir.run
    for each row when (new.attempt < old.attempt) execute function weir.refuse_attempt_going_back();

-- weir.payload is what was asked for, frozen at enqueue. Beside the run, so that the hot row stays small.
create table weir.payload (
    run_id    uuid        not null primary key,
    body      bytea,                            -- canonical JSON; null once erased
    digest    bytea       not null,             -- SHA-256 of body
    erased_at timestamptz,
    constraint payload_erased_has_no_body check ((body is null) = (erased_at is not null))
);

-- +goose StatementBegin
create function weir.guard_payload() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        if exists (select from weir.run where id = old.run_id) then
            raise exception 'weir.payload %: a payload is deleted with its run only', old.run_id
                using errcode = 'check_violation', constraint = 'payload_is_frozen';
        end if;
        return old;
    end if;
    -- The one change allowed is the erasure of personal data, and only once nothing will read it again.
    if new.run_id <> old.run_id or new.digest <> old.digest or new.body is not null
        or not exists (select from weir.run where id = old.run_id and finished_at is not null) then
        raise exception 'weir.payload %: a payload never changes; on a terminal run it may be erased', old.run_id
            using errcode = 'check_violation', constraint = 'payload_is_frozen';
    end if;
    return new;
end
$$;
-- +goose StatementEnd

create trigger payload_is_frozen before update or delete on weir.payload
    for each row execute function weir.guard_payload();

-- weir.receipt says what a step did, and commits with the effect that it describes. There is no foreign key: the fence
-- that is part of every insert has locked the run, and the trigger below deletes receipts with their run.
create table weir.receipt (
    run_id       uuid        not null,
    step_index   integer     not null,
    attempt      bigint      not null, -- filled from the fence: a lost fence is 23502 on this column
    recorded_at  timestamptz not null default clock_timestamp(),
    outcome      text        not null, -- a statement that touched nothing is 23502 on this one
    effect       text        not null,
    step_name    text        not null,
    external_ref text,
    output       jsonb,
    primary key (run_id, step_index),
    constraint receipt_is_whole check (weir.receipt_is_whole(step_index, outcome, effect))
) with (fillfactor = 85);

-- All receipts. A delivery of one message is worked with a row less: while nothing has gone wrong, the run itself says that
-- its message was begun, by its claim, and that it was sent, by its end (docs/adr/0015). What goes otherwise has a row.
create view weir.receipts as
select run_id, step_index, attempt, recorded_at, outcome, effect, step_name, external_ref, output from weir.receipt
union all
select r.id, 0, r.attempt, coalesce(r.finished_at, r.claimed_at, r.created_at), case r.status when 'sent' then 'ok' else 'started' end,
    'at_least_once', 'send', r.external_ref, null
from weir.run r
where r.kind = 'delivery' and r.status in ('processing', 'sent') and not 'many_steps' = any(r.needs)
    and not exists (select from weir.receipt t where t.run_id = r.id);

-- One row for each try that did not end well. Success costs nothing here.
create table weir.ended_try (
    run_id      uuid        not null,
    attempt     bigint      not null, -- of the claim that ended
    ended_at    timestamptz not null default clock_timestamp(),
    claimed_at  timestamptz,
    doorbell_id bigint,
    owner       text,
    how         text        not null,
    error_code  text,
    error       text,
    primary key (run_id, attempt),
    constraint ended_try_how_known check (how in ('failed', 'released', 'snoozed', 'reaped', 'canceled'))
);

-- An idempotency key outlives the run that it made, so that a repeat after cleaning still answers.
create table weir.key (
    kind       text  not null,
    key        text  not null,
    run_id     uuid  not null,         -- the root: a run, or a notification
    digest     bytea not null,         -- SHA-256 of what was asked for
    outcome    jsonb,                  -- written when the run is cleaned away
    expires_at timestamptz,            -- null while the run is there
    primary key (kind, key)
);
create index key_run_idx on weir.key (run_id);
create index key_expires_idx on weir.key (expires_at) where expires_at is not null;

create table weir.notification (
    id         uuid        not null primary key,
    run_ids    uuid[]      not null,
    created_at timestamptz not null default clock_timestamp()
);

-- +goose StatementBegin
create function weir.delete_with_run() returns trigger language plpgsql as $$
begin
    delete from weir.receipt where run_id in (select id from gone);
    delete from weir.ended_try where run_id in (select id from gone);
    delete from weir.payload where run_id in (select id from gone);
    return null;
end
$$;
-- +goose StatementEnd

create trigger run_deletes_its_records after delete on weir.run
    referencing old table as gone for each statement execute function weir.delete_with_run();

-- +goose Down
drop table weir.notification;
drop table weir.key;
drop table weir.ended_try;
drop view weir.receipts;
drop table weir.receipt;
drop table weir.payload;
drop table weir.run;
drop function weir.delete_with_run;
drop function weir.guard_payload;
drop function weir.refuse_attempt_going_back;
drop function weir.run_is_whole;
drop function weir.receipt_is_whole;
