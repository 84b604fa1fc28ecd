// Rows of the tables as values and back. Inside this folder only; every function runs on a thread of the database.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/session.h"
#include "control/types.h"

namespace space::control::rows {

// `where` begins with "WHERE" and is one of our own constants; values are always bound.
template <class... P>
std::vector<Sandbox> sandboxes(Session& session, const std::string& where, const P&... params);
template <class... P>
std::vector<Operation> operations(Session& session, const std::string& where, const P&... params);
std::optional<Sandbox> sandbox(Session& session, const std::string& id);
std::optional<Operation> operation(Session& session, const std::string& id);

void append_event(Session& session, const Event& event);

std::string write_metadata(const std::map<std::string, std::string>& metadata);
std::string write_rest(const RestPolicy& rest);  // "" where nothing is said
RestPolicy read_rest(const std::string& text);
std::string write_error(const std::optional<Error>& error);
std::string write_spans(const std::vector<Span>& spans);
std::map<std::string, std::string> read_metadata(const std::string& text);
std::optional<Error> read_error(const std::string& text);
std::vector<Span> read_spans(const std::string& text);

inline constexpr const char* kSandboxColumns =
    "SELECT sequence, id, tenant, state, template, template_digest, cpus, memory_mib, disk_mib, metadata, time_limit_s, created_ms, "
    "ends_ms, "
    "remaining_ms, end_reason, rest FROM sandboxes ";
using SandboxRow = std::tuple<long long, std::string, std::string, std::string, std::string, std::string, long long, long long, long long,
                              std::string, long long, long long, long long, long long, std::string, std::string>;
Sandbox from_row(SandboxRow row);

inline constexpr const char* kOperationColumns =
    "SELECT sequence, id, tenant, sandbox, kind, state, cancel_requested, reason, request, error, spans, created_ms, started_ms, "
    "finished_ms "
    "FROM operations ";
using OperationRow = std::tuple<long long, std::string, std::string, std::string, std::string, std::string, long long, std::string,
                                std::string, std::string, std::string, long long, long long, long long>;
Operation from_row(OperationRow row);

namespace detail {
template <class... Out, class... P>
std::vector<std::tuple<Out...>> select(Session& session, std::tuple<Out...>*, const std::string& text, const P&... params) {
  return session.query<Out...>(text, params...);
}
template <class T, class Row, class... P>
std::vector<T> read(Session& session, const std::string& text, const P&... params) {
  std::vector<T> out;
  for (Row& row : select(session, static_cast<Row*>(nullptr), text, params...)) out.push_back(from_row(std::move(row)));
  return out;
}
}  // namespace detail

template <class... P>
std::vector<Sandbox> sandboxes(Session& session, const std::string& where, const P&... params) {
  return detail::read<Sandbox, SandboxRow>(session, kSandboxColumns + where, params...);
}
template <class... P>
std::vector<Operation> operations(Session& session, const std::string& where, const P&... params) {
  return detail::read<Operation, OperationRow>(session, kOperationColumns + where, params...);
}

}  // namespace space::control::rows
