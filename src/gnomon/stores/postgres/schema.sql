-- What all migrations add up to, for readers. Made by `make schema`; do not edit.

CREATE SCHEMA gnomon;
CREATE TABLE gnomon.attempt_log (
    guid uuid NOT NULL,
    attempt_id uuid NOT NULL,
    began_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    occurrence_no bigint NOT NULL,
    shard_id integer NOT NULL,
    attempt_no integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL,
    error text,
    answer text,
    owner text
)
PARTITION BY RANGE (began_at);
CREATE TABLE gnomon.attempt_log_default (
    guid uuid NOT NULL,
    attempt_id uuid NOT NULL,
    began_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    occurrence_no bigint NOT NULL,
    shard_id integer NOT NULL,
    attempt_no integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL,
    error text,
    answer text,
    owner text
);
CREATE TABLE gnomon.audit (
    at timestamp with time zone NOT NULL,
    guid uuid NOT NULL,
    shard_id integer NOT NULL,
    count integer NOT NULL,
    verb text NOT NULL,
    actor text NOT NULL,
    id text NOT NULL
);
CREATE TABLE gnomon.finished_action (
    guid uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    purge_at timestamp with time zone NOT NULL,
    occurrence_at timestamp with time zone NOT NULL,
    began_at timestamp with time zone,
    attempt_id uuid,
    occurrence_no bigint NOT NULL,
    shard_id integer NOT NULL,
    attempts integer NOT NULL,
    succeeded integer NOT NULL,
    failed integer NOT NULL,
    interrupted integer NOT NULL,
    consecutive_failures integer NOT NULL,
    consecutive_interruptions integer NOT NULL,
    occurrence_failures integer NOT NULL,
    priority smallint NOT NULL,
    keyed boolean NOT NULL,
    state text NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    spec text NOT NULL,
    last_attempt text,
    reason text,
    CONSTRAINT finished_action_state_check CHECK ((state = ANY (ARRAY['done'::text, 'dead'::text, 'cancelled'::text, 'expired'::text])))
)
PARTITION BY RANGE (finished_at);
CREATE TABLE gnomon.finished_action_default (
    guid uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    purge_at timestamp with time zone NOT NULL,
    occurrence_at timestamp with time zone NOT NULL,
    began_at timestamp with time zone,
    attempt_id uuid,
    occurrence_no bigint NOT NULL,
    shard_id integer NOT NULL,
    attempts integer NOT NULL,
    succeeded integer NOT NULL,
    failed integer NOT NULL,
    interrupted integer NOT NULL,
    consecutive_failures integer NOT NULL,
    consecutive_interruptions integer NOT NULL,
    occurrence_failures integer NOT NULL,
    priority smallint NOT NULL,
    keyed boolean NOT NULL,
    state text NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    spec text NOT NULL,
    last_attempt text,
    reason text,
    CONSTRAINT finished_action_state_check CHECK ((state = ANY (ARRAY['done'::text, 'dead'::text, 'cancelled'::text, 'expired'::text])))
);
CREATE TABLE gnomon.incoming_queue (
    created_at timestamp with time zone NOT NULL,
    guid uuid NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    shard_id integer NOT NULL,
    priority smallint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.installation (
    id uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    shard_count integer NOT NULL,
    schema_version integer NOT NULL,
    floor integer NOT NULL,
    system_identifier bigint NOT NULL,
    timeline bigint NOT NULL,
    database_oid bigint NOT NULL
);
CREATE TABLE gnomon.migration (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone NOT NULL
);
CREATE TABLE gnomon.processing_queue (
    guid uuid NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    attempt_id uuid,
    began_at timestamp with time zone,
    deadline_at timestamp with time zone,
    shard_id integer NOT NULL,
    attempts integer NOT NULL,
    priority smallint NOT NULL,
    running boolean NOT NULL,
    swept boolean NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    owner text
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.scheduled_action (
    guid uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    scheduled_at timestamp with time zone,
    occurrence_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    occurrence_no bigint NOT NULL,
    timeout_us bigint NOT NULL,
    retention_us bigint NOT NULL,
    shard_id integer NOT NULL,
    attempts integer NOT NULL,
    succeeded integer NOT NULL,
    failed integer NOT NULL,
    interrupted integer NOT NULL,
    consecutive_failures integer NOT NULL,
    consecutive_interruptions integer NOT NULL,
    occurrence_failures integer NOT NULL,
    priority smallint NOT NULL,
    keyed boolean NOT NULL,
    state text NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    spec text NOT NULL,
    last_attempt text,
    creator text COLLATE pg_catalog."C",
    CONSTRAINT scheduled_action_state_check CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.shard_lock (
    beat bigint NOT NULL,
    lease_guid uuid,
    heartbeat_at timestamp with time zone,
    last_processing_start_at timestamp with time zone,
    incoming_mark timestamp with time zone,
    shard_id integer NOT NULL,
    owner text
)
WITH (fillfactor='10', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');
CREATE TABLE gnomon.token (
    token_id uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    rate double precision,
    live_max integer,
    digest bytea NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    scopes text[] NOT NULL
);
CREATE TABLE gnomon.worker (
    worker_id uuid NOT NULL,
    started_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    owner text NOT NULL
)
WITH (fillfactor='10');
ALTER TABLE ONLY gnomon.attempt_log ATTACH PARTITION gnomon.attempt_log_default DEFAULT;
ALTER TABLE ONLY gnomon.finished_action ATTACH PARTITION gnomon.finished_action_default DEFAULT;
ALTER TABLE ONLY gnomon.attempt_log
    ADD CONSTRAINT attempt_log_pkey PRIMARY KEY (attempt_id, shard_id, began_at);
ALTER TABLE ONLY gnomon.attempt_log_default
    ADD CONSTRAINT attempt_log_default_pkey PRIMARY KEY (attempt_id, shard_id, began_at);
ALTER TABLE ONLY gnomon.finished_action
    ADD CONSTRAINT finished_action_pkey PRIMARY KEY (shard_id, id, guid, finished_at);
ALTER TABLE ONLY gnomon.finished_action_default
    ADD CONSTRAINT finished_action_default_pkey PRIMARY KEY (shard_id, id, guid, finished_at);
ALTER TABLE ONLY gnomon.incoming_queue
    ADD CONSTRAINT incoming_queue_pkey PRIMARY KEY (shard_id, created_at, guid);
ALTER TABLE ONLY gnomon.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (id);
ALTER TABLE ONLY gnomon.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);
ALTER TABLE ONLY gnomon.processing_queue
    ADD CONSTRAINT processing_queue_pkey PRIMARY KEY (guid, shard_id);
ALTER TABLE ONLY gnomon.scheduled_action
    ADD CONSTRAINT scheduled_action_pkey PRIMARY KEY (shard_id, id);
ALTER TABLE ONLY gnomon.shard_lock
    ADD CONSTRAINT shard_lock_pkey PRIMARY KEY (shard_id);
ALTER TABLE ONLY gnomon.token
    ADD CONSTRAINT token_digest_key UNIQUE (digest);
ALTER TABLE ONLY gnomon.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (token_id);
ALTER TABLE ONLY gnomon.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (worker_id);
CREATE INDEX attempt_log_id_idx ON ONLY gnomon.attempt_log USING btree (shard_id, id, began_at);
CREATE INDEX attempt_log_default_shard_id_id_began_at_idx ON gnomon.attempt_log_default USING btree (shard_id, id, began_at);
CREATE INDEX audit_at_idx ON gnomon.audit USING btree (at);
CREATE INDEX finished_action_guid_idx ON ONLY gnomon.finished_action USING btree (guid);
CREATE INDEX finished_action_default_guid_idx ON gnomon.finished_action_default USING btree (guid);
CREATE INDEX finished_action_purge_idx ON ONLY gnomon.finished_action USING brin (purge_at);
CREATE INDEX finished_action_default_purge_at_idx ON gnomon.finished_action_default USING brin (purge_at);
CREATE INDEX finished_action_trouble_idx ON ONLY gnomon.finished_action USING btree (shard_id, id) WHERE (state <> 'done'::text);
CREATE INDEX finished_action_default_shard_id_id_idx ON gnomon.finished_action_default USING btree (shard_id, id) WHERE (state <> 'done'::text);
CREATE INDEX processing_queue_lane_idx ON gnomon.processing_queue USING btree (shard_id, queue, priority, scheduled_at);
CREATE INDEX processing_queue_running_idx ON gnomon.processing_queue USING btree (shard_id, scheduled_at) WHERE running;
CREATE INDEX scheduled_action_creator_idx ON gnomon.scheduled_action USING btree (creator) WHERE (creator IS NOT NULL);
CREATE INDEX scheduled_action_expiry_idx ON gnomon.scheduled_action USING btree (shard_id, expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX scheduled_action_guid_idx ON gnomon.scheduled_action USING btree (guid);
CREATE INDEX token_name_idx ON gnomon.token USING btree (name, created_at);
ALTER INDEX gnomon.attempt_log_pkey ATTACH PARTITION gnomon.attempt_log_default_pkey;
ALTER INDEX gnomon.attempt_log_id_idx ATTACH PARTITION gnomon.attempt_log_default_shard_id_id_began_at_idx;
ALTER INDEX gnomon.finished_action_guid_idx ATTACH PARTITION gnomon.finished_action_default_guid_idx;
ALTER INDEX gnomon.finished_action_pkey ATTACH PARTITION gnomon.finished_action_default_pkey;
ALTER INDEX gnomon.finished_action_purge_idx ATTACH PARTITION gnomon.finished_action_default_purge_at_idx;
ALTER INDEX gnomon.finished_action_trouble_idx ATTACH PARTITION gnomon.finished_action_default_shard_id_id_idx;
