-- The schema and its upkeep. `/*schema_name*/` is the schema's name alone, `/*table*/` and
-- `/*partition*/` are table names: DDL takes no parameters.

-- name: migrate_lock global
-- One migration at a time in this database, until the end of the transaction.
-- $1 a number made of the schema's name
SELECT pg_advisory_xact_lock($1::bigint);

-- name: migrate_has_schema global
-- $1 schema
SELECT EXISTS (SELECT 1 FROM pg_namespace AS n WHERE n.nspname = $1::text) AS found;

-- name: migrate_create_schema global
CREATE SCHEMA /*schema_name*/;

-- name: migrate_has_tables global
-- $1 schema
SELECT EXISTS (
    SELECT 1 FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1::text AND c.relname = 'migration'
) AS found;

-- name: migrate_distribute global
-- $1 the table's qualified name, $2 the table it lives beside
SELECT create_distributed_table($1::text::regclass, 'shard_id', colocate_with => $2::text);

-- name: migrate_parts global
-- Citus only: into how many parts somebody wants tables to be cut (NULL: nobody said), and the nodes.
SELECT
    (SELECT CASE WHEN s.source <> 'default' THEN s.setting::int END
     FROM pg_settings AS s WHERE s.name = 'citus.shard_count') AS wanted,
    (SELECT count(*)::int FROM pg_dist_node AS n
     WHERE n.isactive AND n.shouldhaveshards AND n.noderole = 'primary') AS nodes;

-- name: migrate_cut global
-- The first table that is distributed says how the others are cut. Beside no other installation's: who
-- moves or cuts a part of one would do so with all of them.
-- $1 the table's qualified name, $2 how many parts
SELECT create_distributed_table(
    $1::text::regclass, 'shard_id', shard_count => $2::int, colocate_with => 'none'
);

-- name: migrate_reference global
-- $1 the table's qualified name
SELECT create_reference_table($1::text::regclass);

-- name: migrate_in_order global
-- Citus only: what changes tables and what distributes others in one transaction goes over one
-- connection to each node, or the second would not see the first.
SELECT set_config('citus.multi_shard_modify_mode', 'sequential', true);

-- name: migrate_record global
-- $1 version, $2 name
INSERT INTO /*schema*/migration (version, name, applied_at)
VALUES ($1::int, $2::text, statement_timestamp());

-- name: migrate_set_version global
-- $1 version
UPDATE /*schema*/installation AS i SET schema_version = $1::int;

-- name: migrate_install global
-- $1 id, $2 shard count, $3 version, $4 floor
INSERT INTO /*schema*/installation (
    id, created_at, shard_count, schema_version, floor, system_identifier, timeline, database_oid
)
SELECT $1::uuid, statement_timestamp(), $2::int, $3::int, $4::int, s.system_identifier,
       c.timeline_id, d.oid::bigint
FROM pg_control_system() AS s
CROSS JOIN pg_control_checkpoint() AS c
CROSS JOIN pg_database AS d
WHERE d.datname = current_database() AND NOT EXISTS (SELECT 1 FROM /*schema*/installation);

-- name: migrate_install_locks global
-- The lock row of every shard exists from now on.
-- $1 shard count
INSERT INTO /*schema*/shard_lock (shard_id, beat)
SELECT s.shard_id, 0 FROM generate_series(0, $1::int - 1) AS s (shard_id)
ON CONFLICT (shard_id) DO NOTHING;

-- name: open global
SELECT i.id, i.shard_count, i.schema_version, i.floor FROM /*schema*/installation AS i;

-- name: open_durability global
SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit,
       current_setting('synchronous_standby_names') AS standbys;

-- name: verify_identity global
-- What was installed, and where we are.
SELECT i.system_identifier, i.timeline, i.database_oid,
       s.system_identifier AS present_system, c.timeline_id AS present_timeline,
       d.oid::bigint AS present_oid
FROM /*schema*/installation AS i
CROSS JOIN pg_control_system() AS s
CROSS JOIN pg_control_checkpoint() AS c
CROSS JOIN pg_database AS d
WHERE d.datname = current_database();

-- name: adopt_identity global
-- $1 system identifier, $2 timeline, $3 database oid
UPDATE /*schema*/installation AS i
SET system_identifier = $1::bigint, timeline = $2::bigint, database_oid = $3::bigint;

-- name: adopt_lock shard-local
-- Take the lock of a shard whoever had it: its owner is in another database.
-- $1 shard, $2 lease guid, $3 owner
UPDATE /*schema*/shard_lock AS l
SET lease_guid = $2::uuid, owner = $3::text, beat = l.beat + 1,
    heartbeat_at = statement_timestamp(), incoming_mark = NULL
WHERE l.shard_id = $1::int
RETURNING l.shard_id;

-- name: adopt_overdue shard-local
-- Rows of current generations that came due by a moment; columns as in list_lapsed_running.
-- $1 shard, $2 moment, $3 limit
SELECT
    q.shard_id, a.id, q.guid, q.attempt_id, a.spec, q.scheduled_at AS due_at, q.began_at,
    q.deadline_at,
    q.attempts, a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed,
    a.interrupted, a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
    a.last_attempt, q.owner, q.running, statement_timestamp() AS now
FROM /*schema*/processing_queue AS q
JOIN /*schema*/scheduled_action AS a ON a.shard_id = q.shard_id AND a.guid = q.guid
WHERE q.shard_id = $1::int AND (q.running OR q.scheduled_at <= $2::timestamptz)
LIMIT $3::int;

-- name: purge_partitions global
-- $1 schema, $2 table
SELECT c.relname
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
JOIN pg_class AS parent ON parent.oid = i.inhparent
JOIN pg_namespace AS n ON n.oid = parent.relnamespace
WHERE n.nspname = $1::text AND parent.relname = $2::text
ORDER BY c.relname;

-- name: purge_make_partition global
-- The bounds are dates that the program made.
CREATE TABLE /*schema*//*partition*/ PARTITION OF /*schema*//*table*/
FOR VALUES FROM ('/*from*/') TO ('/*to*/');

-- name: purge_partition_left global
-- How many rows must still be shown, and how many there are.
-- $1 how many of the first to count at most, $2 of the second
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM /*schema*//*partition*/ AS f
        WHERE f.purge_at > statement_timestamp() LIMIT $1::int
    ) AS kept),
    (SELECT count(*) FROM (SELECT 1 FROM /*schema*//*partition*/ LIMIT $2::int) AS counted);

-- name: purge_drop_partition global
DROP TABLE IF EXISTS /*schema*//*partition*/;

-- name: purge_save_and_drop_partition global
-- What must still be shown goes to where rows without a day are.
ALTER TABLE /*schema*//*table*/ DETACH PARTITION /*schema*//*partition*/;
INSERT INTO /*schema*//*table*/
SELECT * FROM /*schema*//*partition*/ AS f WHERE f.purge_at > statement_timestamp();
DROP TABLE /*schema*//*partition*/;

-- name: purge_finished global
-- Rows that found no partition of their day.
-- $1 limit
WITH old AS (
    SELECT d.shard_id, d.id, d.guid, d.finished_at FROM /*schema*/finished_action_default AS d
    WHERE d.purge_at <= statement_timestamp() LIMIT $1::int
)
DELETE FROM /*schema*/finished_action_default AS f
USING old
WHERE f.shard_id = old.shard_id AND f.id = old.id AND f.guid = old.guid
  AND f.finished_at = old.finished_at
RETURNING f.shard_id;

-- name: purge_attempts global
-- $1 kept for, $2 limit
WITH old AS (
    SELECT d.shard_id, d.attempt_id, d.began_at FROM /*schema*/attempt_log_default AS d
    WHERE d.began_at <= statement_timestamp() - $1::interval LIMIT $2::int
)
DELETE FROM /*schema*/attempt_log_default AS t
USING old
WHERE t.shard_id = old.shard_id AND t.attempt_id = old.attempt_id AND t.began_at = old.began_at
RETURNING t.shard_id;

-- name: purge_progress global
-- $1 longer than any attempt lasts
DELETE FROM /*schema*/attempt_progress AS p WHERE p.at < statement_timestamp() - $1::interval;

-- name: purge_workers global
-- Workers that died without leaving.
-- $1 silent for
DELETE FROM /*schema*/worker AS w WHERE w.heartbeat_at < statement_timestamp() - $1::interval;

-- name: doctor global
-- Everything that must never be true of some shards, in one statement and so on one state of the
-- database. While it lasts, vacuum removes nothing that ended meanwhile.
-- $1 how long after its deadline an attempt may still be unswept, $2 findings at most, $3 shards, $4 how many
-- shards there are
SELECT found.rule, found.subject, found.detail
FROM (
    SELECT 'counters' AS rule, a.id AS subject,
           format('%s attempts begun, but %s succeeded + %s failed + %s interrupted + %s running',
                  q.attempts, a.succeeded, a.failed, a.interrupted, q.running::int) AS detail
    FROM /*schema*/scheduled_action AS a
    JOIN /*schema*/processing_queue AS q ON q.shard_id = a.shard_id AND q.guid = a.guid
    WHERE a.shard_id = ANY ($3::int[]) AND q.shard_id = ANY ($3::int[])
      AND q.attempts <> a.succeeded + a.failed + a.interrupted + q.running::int
    UNION ALL
    SELECT 'counters', a.id,
           format('%s attempts recorded, but %s succeeded + %s failed + %s interrupted',
                  a.attempts, a.succeeded, a.failed, a.interrupted)
    FROM /*schema*/scheduled_action AS a
    WHERE a.shard_id = ANY ($3::int[]) AND a.attempts <> a.succeeded + a.failed + a.interrupted
    UNION ALL
    SELECT 'finished_counters', f.id,
           format('%s attempts, but %s succeeded + %s failed + %s interrupted',
                  f.attempts, f.succeeded, f.failed, f.interrupted)
    FROM /*schema*/finished_action AS f
    WHERE f.shard_id = ANY ($3::int[]) AND f.attempts <> f.succeeded + f.failed + f.interrupted
    UNION ALL
    SELECT 'one_row', a.id,
           format('%s with %s queue rows', a.state, count(i.guid) + least(count(q.guid), 1))
    FROM /*schema*/scheduled_action AS a
    LEFT JOIN /*schema*/incoming_queue AS i
        ON i.shard_id = a.shard_id AND i.guid = a.guid AND i.shard_id = ANY ($3::int[])
    LEFT JOIN /*schema*/processing_queue AS q
        ON q.shard_id = a.shard_id AND q.guid = a.guid AND q.shard_id = ANY ($3::int[])
    WHERE a.shard_id = ANY ($3::int[])
    GROUP BY a.shard_id, a.id, a.state
    HAVING count(i.guid) + least(count(q.guid), 1) <> CASE a.state WHEN 'active' THEN 1 ELSE 0 END
    UNION ALL
    SELECT 'scheduled', a.id, 'active without a due time'
    FROM /*schema*/scheduled_action AS a
    WHERE a.shard_id = ANY ($3::int[]) AND a.state = 'active' AND a.scheduled_at IS NULL
    UNION ALL
    SELECT 'one_life', a.id, 'the same generation is live and finished'
    FROM /*schema*/scheduled_action AS a
    JOIN /*schema*/finished_action AS f ON f.shard_id = a.shard_id AND f.guid = a.guid
    WHERE a.shard_id = ANY ($3::int[]) AND f.shard_id = ANY ($3::int[])
    UNION ALL
    SELECT 'lock_rows', format('shard %s', a.shard_id),
           format('%s actions live in a shard without a lock', count(*))
    FROM /*schema*/scheduled_action AS a
    LEFT JOIN /*schema*/shard_lock AS l ON l.shard_id = a.shard_id
    WHERE a.shard_id = ANY ($3::int[]) AND l.shard_id IS NULL
    GROUP BY a.shard_id
    UNION ALL
    SELECT 'lock_rows', format('shard %s', a.shard_id),
           format('%s actions live in a shard that does not exist', count(*))
    FROM /*schema*/scheduled_action AS a
    WHERE a.shard_id >= $4::int
    GROUP BY a.shard_id
    UNION ALL
    SELECT 'running', a.id, format('still running, its deadline was %s', q.deadline_at)
    FROM /*schema*/processing_queue AS q
    JOIN /*schema*/scheduled_action AS a ON a.shard_id = q.shard_id AND a.guid = q.guid
    WHERE q.shard_id = ANY ($3::int[])
      AND q.running AND q.deadline_at < statement_timestamp() - $1::interval
    UNION ALL
    SELECT 'running', coalesce(a.id, format('shard %s', i.shard_id)),
           format('still running in place, its deadline was %s', i.deadline_at)
    FROM /*schema*/incoming_queue AS i
    LEFT JOIN /*schema*/scheduled_action AS a ON a.shard_id = i.shard_id AND a.guid = i.guid
    WHERE i.shard_id = ANY ($3::int[]) AND i.deadline_at < statement_timestamp() - $1::interval
    UNION ALL
    SELECT 'counters', a.id,
           format('a first attempt runs, but %s attempts are recorded', a.attempts)
    FROM /*schema*/scheduled_action AS a
    JOIN /*schema*/incoming_queue AS i ON i.shard_id = a.shard_id AND i.guid = a.guid
    WHERE i.shard_id = ANY ($3::int[]) AND i.attempt_id IS NOT NULL AND a.attempts <> 0
    UNION ALL
    SELECT 'one_row', a.id, format('runs in a row of %s, but is of %s', i.created_at, a.updated_at)
    FROM /*schema*/scheduled_action AS a
    JOIN /*schema*/incoming_queue AS i ON i.shard_id = a.shard_id AND i.guid = a.guid
    WHERE i.shard_id = ANY ($3::int[]) AND i.attempt_id IS NOT NULL AND i.created_at <> a.updated_at
    UNION ALL
    SELECT 'stale_rows', format('shard %s', q.shard_id),
           format('%s due rows of generations that are gone', count(*))
    FROM /*schema*/processing_queue AS q
    JOIN /*schema*/shard_lock AS l ON l.shard_id = q.shard_id AND l.lease_guid IS NOT NULL
    LEFT JOIN /*schema*/scheduled_action AS a ON a.shard_id = q.shard_id AND a.guid = q.guid
    WHERE q.shard_id = ANY ($3::int[])
      AND a.guid IS NULL AND q.scheduled_at < statement_timestamp() - $1::interval
    GROUP BY q.shard_id
    UNION ALL
    SELECT 'entity_row', q.entity_key,
           format('in the queue of %s, but the entity does not live', q.stage)
    FROM /*schema*/stage_queue AS q
    LEFT JOIN /*schema*/entity AS e ON e.shard_id = q.shard_id AND e.entity_key = q.entity_key
    WHERE q.shard_id = ANY ($3::int[]) AND e.doc IS NULL
    UNION ALL
    SELECT 'entity_row', f.entity_key, 'to be asked about, but the entity does not live'
    FROM /*schema*/changed_entity AS f
    LEFT JOIN /*schema*/entity AS e ON e.shard_id = f.shard_id AND e.entity_key = f.entity_key
    WHERE f.shard_id = ANY ($3::int[]) AND e.doc IS NULL
    UNION ALL
    SELECT 'entity_time', q.entity_key, format('%s for %s without a time', q.status, q.stage)
    FROM /*schema*/stage_queue AS q
    WHERE q.shard_id = ANY ($3::int[]) AND CASE q.status WHEN 'ready' THEN q.ready_at IS NULL
        WHEN 'sleeping' THEN q.timer_at IS NULL END
) AS found
LIMIT $2::int;

-- name: doctor_locks global
-- How many lock rows there are, and how many there must be.
SELECT (SELECT count(*) FROM /*schema*/shard_lock) AS locks,
       (SELECT i.shard_count FROM /*schema*/installation AS i) AS shard_count;

-- name: purge_effects global
-- What is known of the effects of actions that are gone.
-- $1 limit
WITH gone AS (
    SELECT s.shard_id, s.guid
    FROM /*schema*/sql_success AS s
    WHERE NOT EXISTS (
        SELECT 1 FROM /*schema*/scheduled_action AS a
        WHERE a.guid = s.guid AND a.shard_id = s.shard_id
    ) AND NOT EXISTS (
        SELECT 1 FROM /*schema*/scheduled_action AS a
        WHERE a.series = s.guid AND a.shard_id = s.shard_id
    )
    LIMIT $1::int
)
DELETE FROM /*schema*/sql_success AS s
USING gone
WHERE s.shard_id = gone.shard_id AND s.guid = gone.guid
RETURNING s.shard_id;

-- name: now global
SELECT statement_timestamp() AS now;

-- name: purge_audit global
-- Rows that found no partition of their day.
-- $1 kept for, $2 limit
WITH old AS (
    SELECT e.shard_id, e.at, e.guid
    FROM /*schema*/audit_default AS e
    WHERE e.at <= statement_timestamp() - $1::interval
    ORDER BY e.at
    LIMIT $2::int
)
DELETE FROM /*schema*/audit_default AS e
USING old
WHERE e.shard_id = old.shard_id AND e.at = old.at AND e.guid = old.guid
RETURNING e.shard_id;

-- name: measure_size global
SELECT pg_database_size(current_database()) AS bytes;

-- name: measure_tables global
-- $1 schema, $2 limit. By the statistics that the server keeps: no table is read. The partitions of a
-- table count as one.
SELECT
    r.relname::text AS "table",
    sum(pg_total_relation_size(c.oid))::bigint AS bytes,
    sum(coalesce(s.n_live_tup, 0))::bigint AS rows,
    sum(coalesce(s.n_dead_tup, 0))::bigint AS dead_rows,
    max(greatest(s.last_vacuum, s.last_autovacuum)) AS cleaned_at
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_class AS r ON r.oid = coalesce(pg_partition_root(c.oid)::oid, c.oid)
LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
WHERE n.nspname = $1::text AND c.relkind = 'r'
GROUP BY 1
ORDER BY 2 DESC
LIMIT $2::int;

-- name: measure_holders global
-- $1 limit. Whose snapshot is the oldest: vacuum removes nothing that it may still see. What other
-- users' sessions do is only told to those who may read all statistics. Texts of statements are left
-- out: they may hold secrets.
SELECT h.kind, h.name, h.state, h.since, h.transactions
FROM (
    SELECT
        'session' AS kind,
        concat_ws(' ', a.pid, a.usename, nullif(a.application_name, ''), host(a.client_addr)) AS name,
        coalesce(a.state, '') AS state, a.xact_start AS since,
        greatest(age(a.backend_xmin), age(a.backend_xid))::bigint AS transactions
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
      AND coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL
    UNION ALL
    SELECT
        'slot', s.slot_name, CASE WHEN s.active THEN 'active' ELSE 'inactive' END, NULL,
        greatest(age(s.xmin), age(s.catalog_xmin))::bigint
    FROM pg_replication_slots AS s
    WHERE coalesce(s.xmin, s.catalog_xmin) IS NOT NULL
    UNION ALL
    SELECT 'prepared', p.gid, 'prepared', p.prepared, age(p.transaction)::bigint
    FROM pg_prepared_xacts AS p
    WHERE p.database = current_database()
) AS h
ORDER BY h.transactions DESC, h.since
LIMIT $1::int;
