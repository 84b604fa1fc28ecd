// One database connection with its statements kept prepared. Values are whole numbers and texts, never NULL; a statement's text
// is its own key. Used by one thread at a time. Throws soci::soci_error; database.cc turns that into an Error.
#pragma once

#include <soci/soci.h>

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace space::control {

namespace detail {
template <class T>
using Bound = std::conditional_t<std::integral<std::remove_cvref_t<T>> || std::is_enum_v<std::remove_cvref_t<T>>, long long, std::string>;

struct StatementBase {
  virtual ~StatementBase() = default;
};

// SOCI binds by reference: parameters and results live beside their statement.
template <class In, class Out>
struct Statement : StatementBase {
  In in;
  Out out;
  soci::statement statement;

  Statement(soci::session& sql, const std::string& text) : statement(sql) {
    std::apply([&](auto&... value) { (statement.exchange(soci::use(value)), ...); }, in);
    std::apply([&](auto&... value) { (statement.exchange(soci::into(value)), ...); }, out);
    statement.alloc();
    statement.prepare(text);
    statement.define_and_bind();
  }
};
}  // namespace detail

class Session {
 public:
  explicit Session(std::unique_ptr<soci::session> sql) : sql_(std::move(sql)) {}

  // Changes rows; returns how many.
  template <class... P>
  long long exec(const std::string& text, const P&... params) {
    using In = std::tuple<detail::Bound<P>...>;
    return guarded(text, [&] {
      auto& kept = prepared<In, std::tuple<>>(text);
      kept.in = In(static_cast<detail::Bound<P>>(params)...);
      kept.statement.execute(true);
      return kept.statement.get_affected_rows();
    });
  }

  // Every row as a tuple of Out…
  template <class... Out, class... P>
  std::vector<std::tuple<Out...>> query(const std::string& text, const P&... params) {
    using In = std::tuple<detail::Bound<P>...>;
    using Row = std::tuple<Out...>;
    return guarded(text, [&] {
      auto& kept = prepared<In, Row>(text);
      kept.in = In(static_cast<detail::Bound<P>>(params)...);
      std::vector<Row> rows;
      kept.statement.execute(false);
      while (kept.statement.fetch()) rows.push_back(kept.out);  // to the end: an unfinished read would pin the file's old state
      return rows;
    });
  }

 private:
  template <class In, class Out>
  detail::Statement<In, Out>& prepared(const std::string& text) {
    auto found = statements_.find(text);
    if (found == statements_.end()) found = statements_.emplace(text, std::make_unique<detail::Statement<In, Out>>(*sql_, text)).first;
    return static_cast<detail::Statement<In, Out>&>(*found->second);
  }
  // A statement that failed is not used again.
  template <class F>
  auto guarded(const std::string& text, F call) {
    try {
      return call();
    } catch (...) {
      statements_.erase(text);
      throw;
    }
  }

  std::unique_ptr<soci::session> sql_;
  std::unordered_map<std::string, std::unique_ptr<detail::StatementBase>> statements_;  // destroyed before the connection
};

}  // namespace space::control
