// The embedded Store: one SQLite file in write-ahead mode with synchronous=FULL, so a returned change survives a power cut.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "control/store.h"

namespace space::control {

// Opens or makes the file (mode 0600, its folder too) and brings its schema up to date. Blocks. `executor` is the role's loop.
// Errors: database_in_use (another server holds it), schema_newer, store_failed. The clock must outlive the store.
Result<std::unique_ptr<Store>> open_sqlite_store(const std::filesystem::path& path, asio::any_io_executor executor, const Clock& clock);

}  // namespace space::control
