-- 0001: the tables.
-- Changes: everything is new.
-- The previous release: there is none.
--
-- Every key leads with shard_id, so that all tables can be distributed by it (Citus) and one
-- action, its queue rows and its lock live together. No defaults that are computed, no triggers,
-- no sequences: ids come from the program. Fixed-width columns stand first: no padding.
--
-- Each index answers one kind of question and is of no use for another: by guid, by id, by lane. The
-- queues are often empty when statistics are taken, and to a planner that believes in one row all
-- indexes with a fitting column are the same; so the indexes by guid begin with it, and what is
-- looked up by guid is looked up by that alone. See also queries/work.sql. On Citus the shard must be
-- named besides; among equals the newest index is taken, so the index by guid is made last.

CREATE TABLE /*schema*/migration (
    version    int         NOT NULL,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL,
    CONSTRAINT migration_pkey PRIMARY KEY (version)
);

CREATE TABLE /*schema*/installation (
    id                uuid        NOT NULL,
    created_at        timestamptz NOT NULL,
    shard_count       int         NOT NULL,
    schema_version    int         NOT NULL,
    floor             int         NOT NULL,
    system_identifier bigint      NOT NULL,
    timeline          bigint      NOT NULL,
    database_oid      bigint      NOT NULL,
    CONSTRAINT installation_pkey PRIMARY KEY (id)
);

CREATE TABLE /*schema*/worker (
    worker_id    uuid        NOT NULL,
    started_at   timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    owner        text        NOT NULL,
    CONSTRAINT worker_pkey PRIMARY KEY (worker_id)
) WITH (fillfactor = 10);

-- Updated every two seconds: room on the page keeps the updates out of the index.
CREATE TABLE /*schema*/shard_lock (
    beat                     bigint NOT NULL,
    lease_guid               uuid,
    heartbeat_at             timestamptz,
    last_processing_start_at timestamptz,
    incoming_mark            timestamptz,
    shard_id                 int    NOT NULL,
    owner                    text,
    CONSTRAINT shard_lock_pkey PRIMARY KEY (shard_id)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE /*schema*/scheduled_action (
    guid                      uuid        NOT NULL,
    created_at                timestamptz NOT NULL,
    updated_at                timestamptz NOT NULL,
    scheduled_at              timestamptz,
    occurrence_at             timestamptz NOT NULL,
    expires_at                timestamptz,
    occurrence_no             bigint      NOT NULL,
    timeout_us                bigint      NOT NULL,
    retention_us              bigint      NOT NULL,
    shard_id                  int         NOT NULL,
    attempts                  int         NOT NULL,
    succeeded                 int         NOT NULL,
    failed                    int         NOT NULL,
    interrupted               int         NOT NULL,
    consecutive_failures      int         NOT NULL,
    consecutive_interruptions int         NOT NULL,
    occurrence_failures       int         NOT NULL,
    priority                  smallint    NOT NULL,
    keyed                     boolean     NOT NULL,
    state                     text        NOT NULL,
    queue                     text COLLATE "C" NOT NULL,
    id                        text COLLATE "C" NOT NULL,
    spec                      text        NOT NULL,
    last_attempt              text,
    creator                   text COLLATE "C",
    CONSTRAINT scheduled_action_state_check CHECK (state IN ('active', 'paused'))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- Most actions never expire and are not in it.
CREATE INDEX scheduled_action_expiry_idx
    ON /*schema*/scheduled_action (shard_id, expires_at) WHERE expires_at IS NOT NULL;

-- Counts what a token's name has alive; what was created without a token is not in it.
CREATE INDEX scheduled_action_creator_idx
    ON /*schema*/scheduled_action (creator) WHERE creator IS NOT NULL;

ALTER TABLE /*schema*/scheduled_action
    ADD CONSTRAINT scheduled_action_pkey PRIMARY KEY (shard_id, id);

CREATE INDEX scheduled_action_guid_idx ON /*schema*/scheduled_action (guid);

CREATE TABLE /*schema*/incoming_queue (
    created_at   timestamptz NOT NULL,
    guid         uuid        NOT NULL,
    scheduled_at timestamptz NOT NULL,
    shard_id     int         NOT NULL,
    priority     smallint    NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    CONSTRAINT incoming_queue_pkey PRIMARY KEY (shard_id, created_at, guid)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE TABLE /*schema*/processing_queue (
    guid         uuid        NOT NULL,
    scheduled_at timestamptz NOT NULL,
    attempt_id   uuid,
    began_at     timestamptz,
    deadline_at  timestamptz,
    shard_id     int         NOT NULL,
    attempts     int         NOT NULL,
    priority     smallint    NOT NULL,
    running      boolean     NOT NULL,
    swept        boolean     NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    owner        text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE INDEX processing_queue_lane_idx
    ON /*schema*/processing_queue (shard_id, queue, priority, scheduled_at);

-- For the sweeper: attempts whose reservation passed, without walking over a backlog.
CREATE INDEX processing_queue_running_idx
    ON /*schema*/processing_queue (shard_id, scheduled_at) WHERE running;

ALTER TABLE /*schema*/processing_queue
    ADD CONSTRAINT processing_queue_pkey PRIMARY KEY (guid, shard_id);

CREATE TABLE /*schema*/finished_action (
    guid                      uuid        NOT NULL,
    created_at                timestamptz NOT NULL,
    updated_at                timestamptz NOT NULL,
    finished_at               timestamptz NOT NULL,
    purge_at                  timestamptz NOT NULL,
    occurrence_at             timestamptz NOT NULL,
    began_at                  timestamptz,
    attempt_id                uuid,
    occurrence_no             bigint      NOT NULL,
    shard_id                  int         NOT NULL,
    attempts                  int         NOT NULL,
    succeeded                 int         NOT NULL,
    failed                    int         NOT NULL,
    interrupted               int         NOT NULL,
    consecutive_failures      int         NOT NULL,
    consecutive_interruptions int         NOT NULL,
    occurrence_failures       int         NOT NULL,
    priority                  smallint    NOT NULL,
    keyed                     boolean     NOT NULL,
    state                     text        NOT NULL,
    queue                     text COLLATE "C" NOT NULL,
    id                        text COLLATE "C" NOT NULL,
    spec                      text        NOT NULL,
    last_attempt              text,
    reason                    text,
    CONSTRAINT finished_action_state_check
        CHECK (state IN ('done', 'dead', 'cancelled', 'expired'))
) PARTITION BY RANGE (finished_at);

-- What operators look for; the ordinary success pays nothing for it.
CREATE INDEX finished_action_trouble_idx
    ON /*schema*/finished_action (shard_id, id) WHERE state <> 'done';

-- Tells the janitor whether a day is over, for next to nothing at each insert.
CREATE INDEX finished_action_purge_idx ON /*schema*/finished_action USING brin (purge_at);

ALTER TABLE /*schema*/finished_action
    ADD CONSTRAINT finished_action_pkey PRIMARY KEY (shard_id, id, guid, finished_at);

CREATE INDEX finished_action_guid_idx ON /*schema*/finished_action (guid);

CREATE TABLE /*schema*/finished_action_default PARTITION OF /*schema*/finished_action DEFAULT;

CREATE TABLE /*schema*/attempt_log (
    guid          uuid        NOT NULL,
    attempt_id    uuid        NOT NULL,
    began_at      timestamptz NOT NULL,
    ended_at      timestamptz,
    occurrence_no bigint      NOT NULL,
    shard_id      int         NOT NULL,
    attempt_no    int         NOT NULL,
    id            text COLLATE "C" NOT NULL,
    outcome       text        NOT NULL,
    error         text,
    answer        text,
    owner         text
) PARTITION BY RANGE (began_at);

CREATE INDEX attempt_log_id_idx ON /*schema*/attempt_log (shard_id, id, began_at);

ALTER TABLE /*schema*/attempt_log
    ADD CONSTRAINT attempt_log_pkey PRIMARY KEY (attempt_id, shard_id, began_at);

CREATE TABLE /*schema*/attempt_log_default PARTITION OF /*schema*/attempt_log DEFAULT;

-- Who may call. Rows are never removed: a server that needs tokens must not forget that it does.
CREATE TABLE /*schema*/token (
    token_id   uuid        NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    rate       double precision,
    live_max   int,
    digest     bytea       NOT NULL,
    name       text COLLATE "C" NOT NULL,
    scopes     text[]      NOT NULL,
    CONSTRAINT token_pkey PRIMARY KEY (token_id),
    CONSTRAINT token_digest_key UNIQUE (digest)
);

CREATE INDEX token_name_idx ON /*schema*/token (name, created_at);

-- Who changed what, written by the change's own transaction. No key: nothing ever looks one up, and
-- an insert here must never be what a change fails on.
CREATE TABLE /*schema*/audit (
    at       timestamptz NOT NULL,
    guid     uuid        NOT NULL,
    shard_id int         NOT NULL,
    count    int         NOT NULL,
    verb     text        NOT NULL,
    actor    text        NOT NULL,
    id       text        NOT NULL
);

CREATE INDEX audit_at_idx ON /*schema*/audit (at);
