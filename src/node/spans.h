// How long each step of an operation took: part of the answer, so that a slow create can be explained after the fact.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace space::node {

struct Span {
  std::string name;
  std::int64_t start_us = 0;  // since the operation's start
  std::int64_t duration_us = 0;
};

// One operation's spans. Steps that run side by side may overlap. For one loop.
class Spans {
 public:
  explicit Spans(const Clock& clock) : clock_(clock), origin_(clock.monotonic_us()) {}

  // Ends its span when it is destroyed or at `end`.
  class Step {
   public:
    Step(Spans& spans, std::string name) : spans_(&spans), name_(std::move(name)), start_(spans.clock_.monotonic_us()) {}
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    ~Step() { end(); }
    void end() {
      if (!spans_) return;
      spans_->list_.push_back({std::move(name_), start_ - spans_->origin_, spans_->clock_.monotonic_us() - start_});
      spans_ = nullptr;
    }

   private:
    Spans* spans_;
    std::string name_;
    std::int64_t start_;
  };

  const std::vector<Span>& list() const { return list_; }
  std::vector<Span> take() { return std::move(list_); }

 private:
  const Clock& clock_;
  std::int64_t origin_;
  std::vector<Span> list_;
};

}  // namespace space::node
