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
