// Names of signals (signal(7)), with or without "SIG".
#pragma once

#include <optional>
#include <string_view>

namespace space::agent {

std::optional<int> signal_number(std::string_view name);  // "TERM", "SIGTERM", "15"

}  // namespace space::agent
