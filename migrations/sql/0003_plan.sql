-- Approved plans: a frozen, ordered list of tool calls that a person approves and the fleet carries out.

-- +goose Up

-- expires_at: until when somebody must decide, or take an approval up. resumable: an owner that vanished does not end the
-- run. Neither changes while a run is owned, so renewing a lease stays a HOT update.
alter table weir.run add column expires_at timestamptz, add column resumable boolean not null default false;

create index run_expiry_idx on weir.run (expires_at, id)
    where kind = 'plan' and status in ('pending', 'approved');

-- weir.plan is what people said about a plan. What it does is its payload, which never changes.
create table weir.plan (
    run_id          uuid        not null primary key,
    approval_limit  interval    not null,
    proposed_by     text,
    compensates     uuid,        -- the plan whose steps this one undoes
    decision        text,
    decided_by      text,
    decided_at      timestamptz,
    approved_digest bytea,       -- of the bytes that the approver saw
    reason          text,
    constraint plan_decision_known check (decision in ('approved', 'rejected')),
    constraint plan_decision_has_a_name check ((decision is null) = (decided_by is null) and (decision is null) = (decided_at is null)),
    constraint plan_approval_has_a_digest check ((decision is not distinct from 'approved') = (approved_digest is not null))
);
create index plan_compensates_idx on weir.plan (compensates) where compensates is not null;

-- +goose StatementBegin
create function weir.guard_plan() returns trigger language plpgsql as $$
begin
    raise exception 'weir.plan %: a decision is made once', old.run_id
        using errcode = 'check_violation', constraint = 'plan_is_decided_once';
end
$$;
-- +goose StatementEnd

-- An erasure may take the names and texts; what was decided, when, and on which bytes, stays.
create trigger plan_is_decided_once before update on weir.plan
    for each row when (old.decision is not null and (new.decision is distinct from old.decision
        or new.decided_at is distinct from old.decided_at or new.approved_digest is distinct from old.approved_digest
        or new.decided_by is distinct from old.decided_by and new.decided_by <> ''))
    execute function weir.guard_plan();

-- +goose StatementBegin
create function weir.delete_plan_with_run() returns trigger language plpgsql as $$
begin
    delete from weir.plan where run_id in (select id from gone where kind = 'plan');
    return null;
end
$$;
-- +goose StatementEnd

create trigger run_deletes_its_plan after delete on weir.run
    referencing old table as gone for each statement execute function weir.delete_plan_with_run();

-- +goose Down
drop trigger run_deletes_its_plan on weir.run;
drop function weir.delete_plan_with_run;
drop table weir.plan;
drop function weir.guard_plan;
drop index weir.run_expiry_idx;
alter table weir.run drop column expires_at, drop column resumable;
