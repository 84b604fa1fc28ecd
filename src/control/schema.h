// The tables, as numbered steps that were once released and never change again.
#pragma once

#include "base/result.h"
#include "control/session.h"

namespace space::control {

// Brings the schema to the newest version, each step in a transaction of its own. schema_newer: a later SPACE wrote this file.
Result<> migrate(Session& session);
int newest_schema();

}  // namespace space::control
