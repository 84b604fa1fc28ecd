// Sandboxes as E2B's clients read them. Their Python models fail on a missing field, so every required one is always there.
#pragma once

#include "e2b/state.h"

namespace space::e2b {

std::int64_t started_ms(const Found& found);
json::object render_sandbox(const control::Sandbox& sandbox, const Settings& settings,
                            const Tokens& tokens);  // of create, connect, resume, fork
json::object render_listed(const Found& found);
json::object render_detail(const Found& found, const Tokens& tokens);  // without tokens for who may not have them

}  // namespace space::e2b
