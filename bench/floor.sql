\set run :client_id * 1000000000 + :n / 4
\set step :n % 4
\set n :n + 1
\startpipeline
begin;
insert into effect (run, step, note) values (:run, :step, 'what a step of a user''s own writes down') returning id;
update floor_run set lease_expires_at = clock_timestamp() + interval '2 min' where id = :run and attempt = 1 and status = 'running';
insert into floor_receipt (run_id, step_index, attempt, outcome, step_name, output) values (:run, :step, 1, 'ok', 'step_' || :step, '1');
commit;
\endpipeline
