-- The versioned documents. They are in a schema of their own: they share nothing with runs but the database.

-- +goose Up
create schema desk;

-- desk.folder is a tree for each owner. Composite keys make the database itself refuse a folder, or a file, in a folder
-- of somebody else.
create table desk.folder (
    id         text        not null primary key,
    owner      text        not null,
    parent_id  text,
    name       text        not null,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    constraint folder_owner_key unique (owner, id),
    constraint folder_parent_fk foreign key (owner, parent_id) references desk.folder (owner, id),
    constraint folder_id_form check (id ~ '^fld_[0-9a-f]{12}$'),
    constraint folder_not_in_itself check (parent_id <> id),
    constraint folder_name_length check (char_length(name) between 1 and 200),
    constraint folder_owner_length check (char_length(owner) between 1 and 255)
);
-- "Nulls not distinct", which PostgreSQL has from version 15 on only.
create unique index folder_name_key on desk.folder (owner, coalesce(parent_id, ''), name);
create index folder_parent_idx on desk.folder (owner, parent_id);

-- desk.file is the truth about a document: what is stored, and which save made it.
--
-- No column that a save changes stands in an index, so that a save can be a HOT update.
create table desk.file (
    id             text        not null primary key,
    owner          text        not null,
    type           text        not null,
    name           text        not null default 'Untitled',
    folder_id      text,                               -- null: the root
    ai_context     boolean     not null default false,
    version        bigint      not null default 1,     -- raised by one with each save of content
    rev            text        not null,               -- the save that made the version
    writer_id      text,                               -- who made that save; null: the file's creation
    schema_version integer     not null,
    content        json        not null,               -- json, not jsonb: what was saved is returned as it was, every digit of it
    created_at     timestamptz not null default clock_timestamp(),
    updated_at     timestamptz not null default clock_timestamp(),
    deleted_at     timestamptz,
    constraint file_folder_fk foreign key (owner, folder_id) references desk.folder (owner, id),
    constraint file_id_form check (id ~ '^fil_[0-9a-f]{12}$'),
    constraint file_type_known check (type in ('spreadsheet', 'markdown', 'record')),
    constraint file_name_length check (char_length(name) between 1 and 200),
    constraint file_owner_length check (char_length(owner) between 1 and 255),
    constraint file_version_positive check (version >= 1)
) with (fillfactor = 80);
create index file_owner_idx on desk.file (owner, type);
create index file_folder_idx on desk.file (owner, folder_id) where folder_id is not null;

-- +goose StatementBegin
create function desk.refuse_version_going_back() returns trigger language plpgsql as $$
begin
    raise exception 'desk.file %: version may not go from % to %', old.id, old.version, new.version
        using errcode = 'check_violation', constraint = 'file_version_rises_by_one';
end
$$;
-- +goose StatementEnd

create trigger file_version_rises_by_one before update of version on desk.file
    for each row when (new.version <> old.version + 1) execute function desk.refuse_version_going_back();

-- desk.save is the ledger: one row for each version of a file, by the save that made it. A save whose answer was lost is
-- sent again under the same id and finds itself here.
create table desk.save (
    file_id    text        not null references desk.file (id) on delete cascade,
    save_id    text        not null,
    version    bigint      not null,
    created_at timestamptz not null default clock_timestamp(),
    writer_id  text,
    hash       bytea       not null, -- SHA-256 of the canonical request
    constraint save_pkey primary key (file_id, save_id),
    constraint save_version_key unique (file_id, version)
);

-- +goose Down
drop table desk.save;
drop table desk.file;
drop function desk.refuse_version_going_back;
drop table desk.folder;
drop schema desk;
