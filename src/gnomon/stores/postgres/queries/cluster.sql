-- Citus: its catalogue and its nodes; only asked where the extension is.

-- name: cluster_entry global
-- whether this node is the coordinator, and where that is.
SELECT
    (SELECT g.groupid = 0 FROM pg_dist_local_group AS g) AS is_coordinator,
    (SELECT format('%s:%s', n.nodename, n.nodeport) FROM pg_dist_node AS n
     WHERE n.groupid = 0 LIMIT 1) AS coordinator;

-- name: cluster_identity global
-- On another node than the coordinator: which database that is.
SELECT a.success, a.result
FROM run_command_on_coordinator(
    'SELECT concat_ws('' '', s.system_identifier, c.timeline_id, d.oid) '
    'FROM pg_control_system() AS s, pg_control_checkpoint() AS c, pg_database AS d '
    'WHERE d.datname = current_database()',
    give_warning_for_connection_errors => true
) AS a;

-- name: cluster_perform global
-- On another node than the coordinator: let that change a table.
-- $1 the statement
SELECT a.success, a.result
FROM run_command_on_coordinator($1::text, give_warning_for_connection_errors => true) AS a;

-- name: cluster_tables global
-- how it keeps tables of ours; no method: it does not know them.
-- $1 schema, $2 names
SELECT
    c.relname::text AS name, p.partmethod::text AS method, p.colocationid AS colocation,
    (SELECT count(*) FROM pg_dist_shard AS s WHERE s.logicalrelid = c.oid) AS parts
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_dist_partition AS p ON p.logicalrelid = c.oid
WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[])
ORDER BY c.relname;

-- name: cluster_parts global
-- In which part each shard of an installation lives; nothing, if the table is not cut.
-- $1 the table, $2 how many shards
SELECT s.number AS shard_id,
    get_shard_id_for_distribution_column($1::text::regclass, s.number) AS part
FROM generate_series(0, $2::int - 1) AS s (number)
WHERE EXISTS (
    SELECT 1 FROM pg_dist_partition AS p
    WHERE p.logicalrelid = $1::text::regclass AND p.partmethod = 'h'
);

-- name: cluster_homes global
-- On which node each part of an installation lives, and what its tables are called there.
-- $1 the table that the others live beside, $2 schema
SELECT base.shardid AS part, n.groupid, n.nodename, n.nodeport, c.relname AS name,
    shard_name(s.logicalrelid, s.shardid) AS shard_table
FROM pg_dist_shard AS base
JOIN pg_dist_partition AS home ON home.logicalrelid = base.logicalrelid
JOIN pg_dist_placement AS p ON p.shardid = base.shardid
JOIN pg_dist_node AS n ON n.groupid = p.groupid AND n.noderole = 'primary'
JOIN pg_dist_partition AS beside ON beside.colocationid = home.colocationid
JOIN pg_dist_shard AS s
    ON s.logicalrelid = beside.logicalrelid AND s.shardminvalue = base.shardminvalue
JOIN pg_class AS c ON c.oid = s.logicalrelid AND NOT c.relispartition
JOIN pg_namespace AS m ON m.oid = c.relnamespace AND m.nspname = $2::text
WHERE base.logicalrelid = $1::text::regclass AND home.partmethod = 'h';

-- name: cluster_here global
-- Whose installation a connection to a node leads to, and which node that is.
SELECT i.id, (SELECT g.groupid FROM pg_dist_local_group AS g) AS groupid
FROM /*schema*/installation AS i;

-- name: cluster_hold_make global
-- What each transaction at a part's own node begins with: the lock that Citus takes for whoever writes
-- there (5: shared by them, refused to who moves or cuts the part), until the end; and then a
-- look, with a snapshot of its own, whether the part is still here.
CREATE FUNCTION /*schema*/hold_part(its_part bigint, its_group int) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.lock_shard_metadata(5, ARRAY[its_part]);
    IF NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_dist_placement AS p
        JOIN pg_catalog.pg_dist_local_group AS g ON g.groupid = p.groupid
        WHERE p.shardid = its_part AND p.groupid = its_group
    ) THEN
        RAISE EXCEPTION 'part % does not live here', its_part USING ERRCODE = 'GN001';
    END IF;
END
$$;

-- name: cluster_hold_hide global
-- It is the engine's own, like the tables.
REVOKE ALL ON FUNCTION /*schema*/hold_part FROM PUBLIC;

-- name: cluster_hold_place global
-- On every node, each by itself.
-- $1 the function's qualified name
SELECT create_distributed_function($1::text::regproc::regprocedure);

-- name: cluster_size global
-- how many nodes may have parts of tables.
SELECT count(*) AS nodes
FROM pg_dist_node AS n
WHERE n.isactive AND n.shouldhaveshards AND n.noderole = 'primary';

-- name: cluster_nodes global
SELECT format('%s:%s', n.nodename, n.nodeport) AS name, n.isactive, n.hasmetadata, n.metadatasynced
FROM pg_dist_node AS n
WHERE n.noderole = 'primary'
ORDER BY 1;

-- name: cluster_versions global
-- what every node runs. One that is away is no error.
SELECT format('%s:%s', n.nodename, n.nodeport) AS name, a.success, a.result
FROM run_command_on_all_nodes(
    'SELECT e.extversion || '' on PostgreSQL '' || current_setting(''server_version'') '
    'FROM pg_extension AS e WHERE e.extname = ''citus''',
    give_warning_for_connection_errors => true
) AS a
JOIN pg_dist_node AS n ON n.nodeid = a.nodeid
ORDER BY 1;

-- name: cluster_prepared global
-- transactions that every node has prepared long ago. Citus itself ends what is left
-- behind, once a minute.
SELECT format('%s:%s', n.nodename, n.nodeport) AS name, a.success, a.result
FROM run_command_on_all_nodes(
    'SELECT count(*) FROM pg_prepared_xacts AS p WHERE p.database = current_database() '
    'AND p.prepared < statement_timestamp() - interval ''5 minutes''',
    give_warning_for_connection_errors => true
) AS a
JOIN pg_dist_node AS n ON n.nodeid = a.nodeid
ORDER BY 1;

-- name: cluster_functions global
-- Whether what the nodes can do by themselves is there.
-- $1 the function's qualified name
SELECT to_regproc($1::text) IS NOT NULL AS found;

-- name: cluster_function_make global
-- Stores one action without an idempotency key, as `create` does. Citus hands the whole call to the node
-- that has the shard: one message there instead of six. Whoever changes it gives it another name.
CREATE FUNCTION /*schema*/create_one(
    its_shard int, its_id text, its_guid uuid, its_spec text, its_queue text, its_priority smallint,
    its_timeout bigint, its_retention bigint, its_time timestamptz, its_occurrence timestamptz,
    its_expiry timestamptz, its_creator text, its_actor text, its_verb text, its_face text
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    made timestamptz;
BEGIN
    INSERT INTO /*schema*/scheduled_action (
        shard_id, id, guid, spec, state, queue, priority, timeout_us, retention_us, keyed,
        created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at,
        attempts, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures, creator
    )
    VALUES (
        its_shard, its_id, its_guid, its_spec, 'active', its_queue, its_priority, its_timeout,
        its_retention, false, statement_timestamp(), statement_timestamp(), its_time, 1,
        its_occurrence, its_expiry, 0, 0, 0, 0, 0, 0, 0, its_creator
    )
    ON CONFLICT (shard_id, id) DO NOTHING
    RETURNING created_at INTO made;
    IF made IS NOT NULL THEN
        INSERT INTO /*schema*/incoming_queue
            (shard_id, created_at, guid, queue, priority, scheduled_at)
        VALUES (its_shard, made, its_guid, its_queue, its_priority, its_time);
        INSERT INTO /*schema*/audit (at, guid, shard_id, count, verb, actor, id, face)
        VALUES (made, its_guid, its_shard, 1, its_verb, its_actor, its_id, its_face);
    END IF;
    RETURN made;
END
$$;

-- name: cluster_function_hide global
-- It is the engine's own, like the tables.
REVOKE ALL ON FUNCTION /*schema*/create_one FROM PUBLIC;

-- name: cluster_function_place global
-- By its first argument it goes where the shard is.
-- $1 the function's qualified name, $2 the table it goes with
SELECT create_distributed_function(
    $1::text::regproc::regprocedure, 'its_shard', colocate_with => $2::text
);

-- name: create_one global
-- $1 shard, $2 id, $3 guid, $4 spec, $5 queue, $6 priority, $7 timeout in µs, $8 retention in µs,
-- $9 scheduled_at, $10 occurrence_at, $11 expires_at, $12 creator, $13 actor, $14 verb, $15 face
SELECT /*schema*/create_one(
    $1::int, $2::text, $3::uuid, $4::text, $5::text, $6::smallint, $7::bigint, $8::bigint,
    $9::timestamptz, $10::timestamptz, $11::timestamptz, $12::text, $13::text, $14::text, $15::text
) AS created_at;
