#include "control/schema.h"

#include <fmt/format.h>

#include <iterator>
#include <vector>

namespace space::control {
namespace {

// Whole numbers and texts only, never NULL; times in milliseconds since the epoch, 0 for "not yet". Every row has its tenant.
// `sequence` is the order of lists and pages. Only events never use a number twice.
const std::vector<std::vector<const char*>> kSteps = {
    {
        "CREATE TABLE keys (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, prefix TEXT NOT "
        "NULL, "
        "created_ms BIGINT NOT NULL, revoked_ms BIGINT NOT NULL DEFAULT 0)",

        "CREATE TABLE sandboxes (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, state TEXT NOT NULL, "
        "template TEXT NOT NULL, template_digest TEXT NOT NULL DEFAULT '', cpus BIGINT NOT NULL, memory_mib BIGINT NOT NULL, disk_mib "
        "BIGINT NOT NULL, "
        "metadata TEXT NOT NULL, time_limit_s BIGINT NOT NULL, created_ms BIGINT NOT NULL, ends_ms BIGINT NOT NULL DEFAULT 0, "
        "remaining_ms BIGINT NOT NULL DEFAULT 0, end_reason TEXT NOT NULL DEFAULT '', over_ms BIGINT NOT NULL DEFAULT 0)",
        "CREATE INDEX sandboxes_tenant ON sandboxes (tenant, sequence)",
        "CREATE INDEX sandboxes_ends ON sandboxes (ends_ms) WHERE ends_ms > 0",
        // One row for each entry of a sandbox's metadata, for filters.
        "CREATE TABLE labels (name TEXT NOT NULL, value TEXT NOT NULL, sandbox TEXT NOT NULL, PRIMARY KEY (name, value, sandbox))",
        "CREATE INDEX labels_sandbox ON labels (sandbox)",

        "CREATE TABLE operations (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, sandbox TEXT NOT NULL, kind "
        "TEXT NOT NULL, "
        "state TEXT NOT NULL, cancel_requested BIGINT NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '', request TEXT NOT NULL DEFAULT "
        "'', "
        "error TEXT NOT NULL DEFAULT '', spans TEXT NOT NULL DEFAULT '', created_ms BIGINT NOT NULL, started_ms BIGINT NOT NULL DEFAULT 0, "
        "finished_ms BIGINT NOT NULL DEFAULT 0)",
        "CREATE INDEX operations_sandbox ON operations (sandbox)",

        "CREATE TABLE events (sequence INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, type TEXT NOT NULL, sandbox TEXT NOT NULL, "
        "operation TEXT NOT NULL, data TEXT NOT NULL, time_ms BIGINT NOT NULL)",

        "CREATE TABLE answers (tenant TEXT NOT NULL, name TEXT NOT NULL, fingerprint TEXT NOT NULL, status BIGINT NOT NULL, body TEXT NOT "
        "NULL, "
        "operation TEXT NOT NULL DEFAULT '', created_ms BIGINT NOT NULL, PRIMARY KEY (tenant, name))",
        "CREATE INDEX answers_created ON answers (created_ms)",
    },
    {
        // Keys from before had every right.
        "ALTER TABLE keys ADD COLUMN scopes TEXT NOT NULL DEFAULT 'admin'",
        "ALTER TABLE keys ADD COLUMN expires_ms BIGINT NOT NULL DEFAULT 0",
    },
    {
        "CREATE TABLE settings (sandbox TEXT PRIMARY KEY, text TEXT NOT NULL, created_ms BIGINT NOT NULL)",
    },
    {
        "CREATE TABLE egress (sandbox TEXT PRIMARY KEY, tenant TEXT NOT NULL, lineage TEXT NOT NULL, generation BIGINT NOT NULL, document "
        "TEXT NOT NULL)",
        "CREATE TABLE public_ports (sandbox TEXT NOT NULL, port BIGINT NOT NULL, PRIMARY KEY (sandbox, port))",
    },
    {
        "ALTER TABLE sandboxes ADD COLUMN rest TEXT NOT NULL DEFAULT ''",
    },
};

// What only makes reading quicker: no part of the version, since an earlier build works with it too.
constexpr const char* kIndexes[] = {
    // Every event stream reads at every change of anybody's. Without it that of a tenant with few events went through all of the others'.
    "CREATE INDEX IF NOT EXISTS events_tenant ON events (tenant)",  // and by sequence, which is the row's number
};

}  // namespace

int newest_schema() { return static_cast<int>(kSteps.size()); }

Result<> migrate(Session& session) {
  session.exec("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)");
  const auto rows = session.query<long long>("SELECT version FROM schema_version");
  const long long found = rows.empty() ? 0 : std::get<0>(rows.front());
  if (found > newest_schema())
    return fail(ErrorKind::conflict, "schema_newer", fmt::format("the database has schema {}, this build knows {}", found, newest_schema()),
                "use the SPACE version that wrote it, or a later one");
  for (auto step = static_cast<std::size_t>(found); step < kSteps.size(); ++step) {
    session.exec("BEGIN IMMEDIATE");
    for (const char* statement : kSteps[step]) session.exec(statement);
    session.exec("DELETE FROM schema_version");
    session.exec("INSERT INTO schema_version (version) VALUES (:v)", step + 1);
    session.exec("COMMIT");
  }
  for (const char* index : kIndexes) session.exec(index);
  return {};
}

}  // namespace space::control
