// Bytes that were read and not used yet. For this folder and src/egress.
#pragma once

#include <boost/asio/buffer.hpp>
#include <cstring>
#include <memory>
#include <string_view>

namespace space::http {

class InBuffer {
 public:
  std::string_view view() const { return {data_.get() + begin_, end_ - begin_}; }
  std::size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  void consume(std::size_t n) {
    ::explicit_bzero(data_.get() + begin_, n);  // a credential may have been in it
    begin_ += n;
    if (begin_ == end_) begin_ = end_ = 0;
  }

  // Room for at least `least` bytes behind what is there.
  boost::asio::mutable_buffer prepare(std::size_t least) {
    if (capacity_ - end_ < least) {
      const std::size_t wanted = size() + least;
      if (wanted > capacity_) {
        const std::size_t capacity = std::max(wanted, std::min(capacity_ * 2, std::size_t{64} << 10));
        auto bigger = std::make_unique_for_overwrite<char[]>(capacity);
        if (!empty()) std::memcpy(bigger.get(), data_.get() + begin_, size());
        data_ = std::move(bigger);
        capacity_ = capacity;
      } else if (!empty()) {
        std::memmove(data_.get(), data_.get() + begin_, size());
      }
      end_ -= begin_;
      begin_ = 0;
    }
    return {data_.get() + end_, capacity_ - end_};
  }
  void commit(std::size_t n) { end_ += n; }

  // An idle connection keeps nothing large.
  void shrink() {
    if (!empty() || capacity_ <= 4096) return;
    data_.reset();
    begin_ = end_ = capacity_ = 0;
  }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t capacity_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace space::http
