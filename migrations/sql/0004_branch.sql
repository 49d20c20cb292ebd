-- Branch resets: which branches there are, and what their providers say of the operations of a reset.

-- +goose Up

-- weir.branch is the register. A provider touches no database that is not in it.
create table weir.branch (
    name       text        not null primary key,
    provider   text        not null,            -- the name under which the fleet has it, such as 'neon'
    project    text        not null default '', -- where the provider has several
    target     text        not null,            -- the provider's own name of the branch
    parent     text        not null default '', -- what it is reset to; empty: the provider knows
    retention  interval,                        -- how far back a point in time may lie; null: the provider says
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    constraint branch_name_length check (octet_length(name) between 1 and 200),
    constraint branch_provider_form check (provider ~ '^[a-z][a-z0-9_\-]{0,62}$'),
    constraint branch_target_length check (octet_length(target) between 1 and 200),
    constraint branch_not_its_own_parent check (parent <> target),
    constraint branch_retention_positive check (retention > interval '0')
);

-- Two names for one database would be two resets of it at a time.
create unique index branch_target_idx on weir.branch (provider, project, target);

-- weir.branch_operation is what a provider said of one operation of a reset: a receipt, written under the run's fence.
create table weir.branch_operation (
    run_id        uuid        not null,
    operation_id  text        not null,
    attempt       bigint      not null, -- the owner's that saw the status last
    first_seen_at timestamptz not null default clock_timestamp(),
    last_seen_at  timestamptz not null default clock_timestamp(),
    action        text        not null default '',
    status        text        not null, -- the provider's own word
    state         text        not null, -- what that word means
    final         boolean     not null,
    error         text,
    seen          jsonb       not null, -- every status, with the time when it was first seen
    primary key (run_id, operation_id),
    constraint branch_operation_state_known check (
        state in ('running', 'finished', 'retrying', 'failed', 'canceled', 'skipped', 'unheard')
        and final = (state in ('finished', 'failed', 'canceled', 'skipped')))
);

-- Resets that are due, for the dbops-reaper: a backlog of other kinds must not stand before them. Like run_due_idx it
-- names no column of the lease.
create index run_reset_due_idx on weir.run (next_attempt_at, id)
    where kind = 'branch_reset' and status in ('queued', 'running');

-- The history of a branch.
create index run_reset_of_branch_idx on weir.run (exclusive_key, id) where kind = 'branch_reset';

-- +goose StatementBegin
create function weir.delete_operations_with_run() returns trigger language plpgsql as $$
begin
    delete from weir.branch_operation where run_id in (select id from gone where kind = 'branch_reset');
    return null;
end
$$;
-- +goose StatementEnd

create trigger run_deletes_its_operations after delete on weir.run
    referencing old table as gone for each statement execute function weir.delete_operations_with_run();

-- +goose Down
drop trigger run_deletes_its_operations on weir.run;
drop function weir.delete_operations_with_run;
drop index weir.run_reset_of_branch_idx;
drop index weir.run_reset_due_idx;
drop table weir.branch_operation;
drop table weir.branch;
