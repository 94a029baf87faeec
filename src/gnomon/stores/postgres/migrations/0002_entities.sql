-- 0002: entities and their stages.
-- Changes: new tables and a view, nothing else.
-- The previous release: knows none of them and goes on.
--
-- Every key leads with shard_id, as in 0001: an entity and all that belongs to it live together. What
-- belongs to an entity is only written by who has locked its row, except for timers that fire and
-- outbox rows that leave. `entity_key` is `kind/id`: all of one kind stand together in an index. Texts that are JSON arrays (`paths`) are so because they travel in arrays.

-- `saves` numbers the outbox rows of a key through all its epochs. No column that a save changes is in
-- an index, so that a save is written beside the row as it was.
CREATE TABLE /*schema*/entity (
    changed_at   /*schema*/moment NOT NULL,
    epoch        bigint      NOT NULL,
    version      bigint      NOT NULL,
    saves        bigint      NOT NULL,
    shard_id     int         NOT NULL,
    keeps_states boolean     NOT NULL,
    entity_key           text COLLATE "C" NOT NULL,
    doc          text,
    CONSTRAINT entity_pkey PRIMARY KEY (shard_id, entity_key)
) WITH (fillfactor = 80);

-- Tombstones whose states are still kept.
CREATE INDEX entity_kept_idx ON /*schema*/entity (shard_id, entity_key) WHERE keeps_states;

CREATE TABLE /*schema*/entity_change (
    root     uuid        NOT NULL,
    at       /*schema*/moment NOT NULL,
    epoch    bigint      NOT NULL,
    version  bigint      NOT NULL,
    shard_id int         NOT NULL,
    depth    int         NOT NULL,
    entity_key       text COLLATE "C" NOT NULL,
    author   text        NOT NULL,
    paths    text        NOT NULL,
    CONSTRAINT entity_change_pkey PRIMARY KEY (shard_id, entity_key, epoch, version)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- For the janitor, and for next to nothing at each insert.
CREATE INDEX entity_change_at_idx ON /*schema*/entity_change USING brin (at);

CREATE TABLE /*schema*/stage_state (
    version   bigint NOT NULL,
    shard_id  int    NOT NULL,
    revision  int    NOT NULL,
    entity_key text COLLATE "C" NOT NULL,
    stage     text COLLATE "C" NOT NULL,
    type      text,
    body      bytea  NOT NULL,
    CONSTRAINT stage_state_pkey PRIMARY KEY (shard_id, entity_key, stage)
) WITH (fillfactor = 80);

-- An entity is in a stage's queue at most once. `seq` is what a commit must find unchanged to remove
-- the row; it begins with the time in µs, so that a row that comes back never looks like the old one.
CREATE TABLE /*schema*/stage_queue (
    ready_at  /*schema*/moment,
    timer_at  /*schema*/moment,
    first_at  /*schema*/moment NOT NULL,
    root      uuid        NOT NULL,
    seq       bigint      NOT NULL,
    shard_id  int         NOT NULL,
    depth     int         NOT NULL,
    attempts  int         NOT NULL,
    lane      smallint    NOT NULL,
    status    text COLLATE "C" NOT NULL,
    entity_key text COLLATE "C" NOT NULL,
    stage     text COLLATE "C" NOT NULL,
    reasons   text[]      NOT NULL,
    error     text,
    note      text,
    CONSTRAINT stage_queue_values_check CHECK (
        status IN ('sleeping', 'ready', 'quarantined', 'looping') AND lane IN (0, 1))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE INDEX stage_queue_ready_idx
    ON /*schema*/stage_queue (shard_id, stage, lane, ready_at) WHERE status = 'ready';

-- Parked rows keep their timers, which do not fire: they would be in the way of the others.
CREATE INDEX stage_queue_timer_idx
    ON /*schema*/stage_queue (shard_id, timer_at)
    WHERE timer_at IS NOT NULL AND status IN ('sleeping', 'ready');

CREATE INDEX stage_queue_parked_idx
    ON /*schema*/stage_queue (entity_key, stage) WHERE status IN ('quarantined', 'looping');

ALTER TABLE /*schema*/stage_queue
    ADD CONSTRAINT stage_queue_pkey PRIMARY KEY (shard_id, entity_key, stage);

-- The queue by entity: for readers.
CREATE VIEW /*schema*/queue_inverted AS
SELECT q.shard_id, q.entity_key, q.stage, q.status, q.lane, q.ready_at, q.timer_at, q.seq, q.attempts
FROM /*schema*/stage_queue AS q;

-- Entities with changes that no stage was asked about: those of this epoch after version `since`.
CREATE TABLE /*schema*/changed_entity (
    first_at  timestamptz NOT NULL,
    seq       bigint      NOT NULL,
    epoch     bigint      NOT NULL,
    since     bigint      NOT NULL,
    shard_id  int         NOT NULL,
    entity_key text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE INDEX changed_entity_first_idx ON /*schema*/changed_entity (shard_id, first_at);

ALTER TABLE /*schema*/changed_entity
    ADD CONSTRAINT changed_entity_pkey PRIMARY KEY (shard_id, entity_key);

-- Saves on their way out. `n` is the entity's number of the save: in order for each sink and entity.
-- Without `ready_at`, a row is quarantined or behind one that is.
CREATE TABLE /*schema*/stage_outbox (
    root           uuid        NOT NULL,
    at             timestamptz NOT NULL,
    ready_at       timestamptz,
    epoch          bigint      NOT NULL,
    version        bigint      NOT NULL,
    n              bigint      NOT NULL,
    state_version  bigint,
    shard_id       int         NOT NULL,
    attempts       int         NOT NULL,
    state_revision int,
    sink           text COLLATE "C" NOT NULL,
    entity_key      text COLLATE "C" NOT NULL,
    author         text        NOT NULL,
    paths          text        NOT NULL,
    key            text        NOT NULL,
    doc            text,
    state_type     text,
    state_body     bytea,
    error          text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE INDEX stage_outbox_ready_idx
    ON /*schema*/stage_outbox (shard_id, sink, ready_at, n) WHERE ready_at IS NOT NULL;

CREATE INDEX stage_outbox_parked_idx
    ON /*schema*/stage_outbox (entity_key, sink, n) WHERE ready_at IS NULL;

-- What was put off, to tell how old it is: nothing, as long as all goes well.
CREATE INDEX stage_outbox_late_idx ON /*schema*/stage_outbox (shard_id, sink, at) WHERE ready_at > at;

ALTER TABLE /*schema*/stage_outbox
    ADD CONSTRAINT stage_outbox_pkey PRIMARY KEY (shard_id, entity_key, sink, n);

-- The register: every stage that was ever declared and not forgotten, with the kind of its entities.
CREATE TABLE /*schema*/stage (
    first_seen_at /*schema*/moment NOT NULL,
    last_seen_at  /*schema*/moment NOT NULL,
    debounce        interval    NOT NULL,
    revision      int         NOT NULL,
    name          text COLLATE "C" NOT NULL,
    kind          text COLLATE "C" NOT NULL,
    watch         text        NOT NULL,
    writes        text        NOT NULL,
    CONSTRAINT stage_pkey PRIMARY KEY (name),
    CONSTRAINT stage_values_check CHECK (
        revision >= 0 AND debounce BETWEEN '0' AND '1 day')
);

-- Which workers serve it, and when they last said so.
CREATE TABLE /*schema*/stage_server (
    seen_at   timestamptz NOT NULL,
    worker_id uuid        NOT NULL,
    stage     text COLLATE "C" NOT NULL,
    CONSTRAINT stage_server_pkey PRIMARY KEY (worker_id, stage)
);

-- Whose lease it is: what the owner of a shard does not serve, others do in its place.
CREATE TABLE /*schema*/stage_owner (
    shard_id   int  NOT NULL,
    lease_guid uuid NOT NULL,
    worker_id  uuid NOT NULL,
    CONSTRAINT stage_owner_pkey PRIMARY KEY (shard_id)
);

-- Walks over the entities of a shard that are of the stage's kind; one that has ended stays, to tell when it began.
CREATE TABLE /*schema*/stage_backfill (
    started_at timestamptz NOT NULL,
    shard_id   int         NOT NULL,
    ended      boolean     NOT NULL,
    stage      text COLLATE "C" NOT NULL,
    cursor     text COLLATE "C",
    reason     text        NOT NULL,
    CONSTRAINT stage_backfill_pkey PRIMARY KEY (shard_id, stage)
);
