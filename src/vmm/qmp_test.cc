// A scripted VMM at the other end of a socketpair: what it may say, and all that it must not.
#include "vmm/qmp.h"

#include <csignal>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/file.h"
#include "base/unix_socket.h"

namespace space::vmm {
namespace {

using namespace std::chrono_literals;
constexpr const char* kGreeting =
    R"({"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "x"}, "capabilities": ["oob"]}})"
    "\r\n";

// The VMM's end, used from a thread of its own.
class Peer {
 public:
  explicit Peer(Fd fd) : fd_(std::move(fd)) {}
  void say(std::string_view bytes) { (void)write_all(fd_, bytes); }
  json::object hear() {  // the next command; empty when the client went away
    while (pending_.find('\n') == std::string::npos) {
      auto packet = receive_packet(fd_, 65536);
      if (!packet) return {};
      pending_ += packet->bytes;
      for (Fd& fd : packet->fds) passed.push_back(std::move(fd));
    }
    const std::size_t end = pending_.find('\n');
    auto object = parse_json_object(pending_.substr(0, end)).value();
    pending_.erase(0, end + 1);
    return object;
  }
  std::uint64_t id_of(const json::object& command) { return command.at("id").to_number<std::uint64_t>(); }
  void answer(const json::object& command, std::string_view value = "{}") {
    say(fmt::format("{{\"return\": {}, \"id\": {}}}\r\n", value, id_of(command)));
  }
  void greet() {
    say(kGreeting);
    answer(hear());
  }
  void close() { fd_.reset(); }
  std::vector<Fd> passed;

 private:
  Fd fd_;
  std::string pending_;
};

class Qmp : public ::testing::Test {
 protected:
  Qmp() { ::signal(SIGPIPE, SIG_IGN); }  // the peer may write to a client that gave it up
  // Runs `client` on a loop against `peer` on a thread.
  template <class Client>
  void play(std::function<void(Peer&)> peer, Client client) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    Peer other{Fd(pair[1])};
    std::thread thread([&] {
      peer(other);
      other.close();
    });
    asio::io_context loop;
    bool done = false;
    spawn(loop.get_executor(), [](Client run, Fd fd, bool& finished) -> asio::awaitable<void> {
      co_await run(std::move(fd));
      finished = true;
    }(std::move(client), Fd(pair[0]), done));
    loop.run_for(20s);
    EXPECT_TRUE(done);
    thread.join();
  }
  // The error that a client meets who opens the connection and runs one command.
  std::string failure(std::function<void(Peer&)> peer, QmpLimits limits = {}) {
    std::string code;
    play(std::move(peer), [&](Fd fd) -> asio::awaitable<void> { return meet(std::move(fd), limits, code); });
    return code;
  }
  static asio::awaitable<void> meet(Fd fd, QmpLimits limits, std::string& code) {
    auto client = co_await QmpClient::open(std::move(fd), {}, limits);
    if (!client) {
      code = client.error().code;
      co_return;
    }
    auto answer = co_await (*client)->execute("query-status");
    code = answer ? "" : answer.error().code;
  }
};

TEST_F(Qmp, RunsCommandsAndHandsEventsOver) {
  std::vector<std::string> events;
  play(
      [](Peer& vmm) {
        vmm.greet();
        vmm.say(R"({"event": "RESUME", "data": {"a": 1}, "timestamp": {"seconds": 1, "microseconds": 2}})"
                "\r\n");
        auto first = vmm.hear();
        EXPECT_EQ(first.at("execute").get_string(), "query-status");
        EXPECT_FALSE(first.contains("arguments"));
        // Cut in the middle, with an event between.
        vmm.say("{\"event\":\"STOP\",\"timestamp\":{}}\n{\"return\": {\"status\"");
        std::this_thread::sleep_for(10ms);
        vmm.say(fmt::format(": \"paused\"}}, \"id\": {}}}\n", vmm.id_of(first)));
        auto second = vmm.hear();
        EXPECT_EQ(second.at("arguments").get_object().at("size").to_number<int>(), 7);
        vmm.answer(second, "[1, 2]");
      },
      [&](Fd fd) {
        return [](Fd socket, std::vector<std::string>& seen) -> asio::awaitable<void> {
          QmpClient::EventHandler handler = [&seen](const QmpEvent* event) { seen.push_back(event ? event->name : "over"); };
          auto client = co_await QmpClient::open(std::move(socket), handler);
          EXPECT_TRUE(client.has_value());
          EXPECT_EQ((*client)->version(), "7.2.22");
          auto status = co_await (*client)->execute("query-status");
          EXPECT_EQ(status.value().get_object().at("status").get_string(), "paused");
          json::object arguments{{"size", 7}};
          auto list = co_await (*client)->execute("something", arguments);
          EXPECT_EQ(list.value().get_array().size(), 2u);
          // The peer closes now.
          co_await sleep_for(50ms);
          EXPECT_FALSE((*client)->usable());
        }(std::move(fd), events);
      });
  EXPECT_EQ(events, (std::vector<std::string>{"RESUME", "STOP", "over"}));
}

TEST_F(Qmp, AsksForWhatLetsAVmmReadAheadWhereItIsOffered) {
  const std::string without = R"({"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}}, "capabilities": []}})"
                              "\n";
  for (const bool offered : {true, false}) {
    play(
        [&](Peer& vmm) {
          vmm.say(offered ? std::string(kGreeting) : without);
          auto first = vmm.hear();
          EXPECT_EQ(first.at("execute").get_string(), "qmp_capabilities");
          ASSERT_EQ(first.contains("arguments"), offered);
          if (offered) {
            EXPECT_EQ(json::serialize(first.at("arguments")), R"({"enable":["oob"]})");
          }
          vmm.answer(first);
        },
        [](Fd fd) {
          return [](Fd socket) -> asio::awaitable<void> {
            auto client = co_await QmpClient::open(std::move(socket));
            EXPECT_TRUE(client.has_value());
          }(std::move(fd));
        });
  }
}

TEST_F(Qmp, PassesADescriptor) {
  play(
      [](Peer& vmm) {
        vmm.greet();
        auto command = vmm.hear();
        ASSERT_EQ(vmm.passed.size(), 1u);
        EXPECT_EQ(read_fd(vmm.passed[0], 100).value(), "through the socket");
        vmm.answer(command);
      },
      [](Fd fd) {
        return [](Fd socket) -> asio::awaitable<void> {
          auto client = co_await QmpClient::open(std::move(socket));
          int ends[2];
          EXPECT_EQ(::pipe(ends), 0);
          Fd reader(ends[0]);
          (void)write_all(Fd(ends[1]), "through the socket");
          json::object arguments{{"fdname", "x"}};
          auto answer = co_await (*client)->execute("getfd", arguments, &reader);
          EXPECT_TRUE(answer.has_value());
        }(std::move(fd));
      });
}

TEST_F(Qmp, ARefusedCommandLeavesTheClientUsable) {
  play(
      [](Peer& vmm) {
        vmm.greet();
        auto first = vmm.hear();
        vmm.say(fmt::format("{{\"id\": {}, \"error\": {{\"class\": \"GenericError\", \"desc\": \"no\\u0007 \\u001b[31m {}\"}}}}\n",
                            vmm.id_of(first), std::string(2000, 'x')));
        vmm.answer(vmm.hear());
      },
      [](Fd fd) {
        return [](Fd socket) -> asio::awaitable<void> {
          auto client = co_await QmpClient::open(std::move(socket));
          auto refused = co_await (*client)->execute("cont");
          EXPECT_EQ(refused.error().code, "qmp_error");
          EXPECT_LT(refused.error().message.size(), 700u);
          EXPECT_EQ(refused.error().message.find('\x1b'), std::string::npos);
          auto next = co_await (*client)->execute("cont");
          EXPECT_TRUE(next.has_value());
        }(std::move(fd));
      });
}

TEST_F(Qmp, CommandsOfSeveralCallersGoOneAfterAnother) {
  play(
      [](Peer& vmm) {
        vmm.greet();
        for (int i = 0; i < 3; ++i) {
          auto command = vmm.hear();
          std::this_thread::sleep_for(5ms);
          vmm.answer(command, fmt::format("\"{}\"", std::string(command.at("execute").get_string())));
        }
      },
      [](Fd fd) {
        return [](Fd socket) -> asio::awaitable<void> {
          auto client = co_await QmpClient::open(std::move(socket));
          int finished = 0;
          auto executor = co_await asio::this_coro::executor;
          for (const std::string name : {"a", "b", "c"})
            spawn(executor, [](QmpClient& qmp, std::string command, int& count) -> asio::awaitable<void> {
              auto answer = co_await qmp.execute(command);
              EXPECT_EQ(answer.value().get_string(), command);
              ++count;
            }(**client, name, finished));
          while (finished < 3) co_await sleep_for(5ms);
        }(std::move(fd));
      });
}

// Opens a client, sends "a", "b" and "c" at once, and hands their answers (what they returned, or the code of the error) to `check` in
// the order 2, 0, 1; `after` is what a further command comes to.
struct SeriesOutcome {
  std::string answers[3], after;
};
asio::awaitable<void> run_series(Fd socket, QmpLimits limits, SeriesOutcome& out) {
  const auto text = [](const Result<json::value>& answer) {
    return answer ? (answer->is_string() ? std::string(answer->get_string()) : "") : answer.error().code;
  };
  auto client = co_await QmpClient::open(std::move(socket), {}, limits);
  EXPECT_TRUE(client.has_value());
  std::vector<QmpCommand> commands{{"a"}, {"b", {{"size", 7}}}, {"c"}};
  auto sent = co_await (*client)->send_together(std::move(commands));
  EXPECT_TRUE(sent.has_value());
  for (const std::size_t number : {2, 0, 1}) {
    auto answer = co_await sent->answer(number);
    out.answers[number] = text(answer);
  }
  auto next = co_await (*client)->execute("d");
  out.after = text(next);
}

class QmpSeries : public Qmp {
 protected:
  SeriesOutcome outcome(std::function<void(Peer&)> peer, QmpLimits limits = {}) {
    SeriesOutcome out;
    play(std::move(peer), [&](Fd fd) { return run_series(std::move(fd), limits, out); });
    return out;
  }
  static std::vector<json::object> hear_three(Peer& vmm) {
    std::vector<json::object> all;
    for (int i = 0; i < 3; ++i) all.push_back(vmm.hear());
    return all;
  }
  // Three commands, of which the second is answered by what `refuse` makes of its number.
  SeriesOutcome with_a_second_refused(const std::function<std::string(std::uint64_t)>& refuse) {
    return outcome([&](Peer& vmm) {
      vmm.greet();
      const auto all = hear_three(vmm);
      vmm.answer(all[0], "\"first\"");
      vmm.say(refuse(vmm.id_of(all[1])));
      vmm.answer(all[2], "\"third\"");
      vmm.answer(vmm.hear(), "\"next\"");
    });
  }
  static std::string refusal(std::uint64_t id) {
    return fmt::format("{{\"id\": {}, \"error\": {{\"class\": \"GenericError\", \"desc\": \"no\"}}}}\n", id);
  }
};

TEST_F(QmpSeries, IsSentBeforeAnyAnswerAndInItsOrder) {
  const SeriesOutcome out = outcome([](Peer& vmm) {
    vmm.greet();
    const auto all = hear_three(vmm);
    EXPECT_EQ(all[0].at("execute").get_string(), "a");
    EXPECT_EQ(all[1].at("execute").get_string(), "b");
    EXPECT_EQ(all[1].at("arguments").get_object().at("size").to_number<int>(), 7);
    EXPECT_EQ(all[2].at("execute").get_string(), "c");
    vmm.answer(all[0], "\"first\"");
    std::this_thread::sleep_for(5ms);
    vmm.say("{\"event\": \"STOP\"}\n");
    vmm.answer(all[1], "\"second\"");
    vmm.answer(all[2], "\"third\"");
    vmm.answer(vmm.hear(), "\"next\"");
  });
  EXPECT_EQ(out.answers[0], "first");
  EXPECT_EQ(out.answers[1], "second");
  EXPECT_EQ(out.answers[2], "third");
  EXPECT_EQ(out.after, "next");
}

TEST_F(QmpSeries, ARefusalInTheMiddleIsThatCommandsAlone) {
  const SeriesOutcome out = with_a_second_refused([](std::uint64_t id) { return refusal(id); });
  EXPECT_EQ(out.answers[0], "first");
  EXPECT_EQ(out.answers[1], "qmp_error");
  EXPECT_EQ(out.answers[2], "third");
  EXPECT_EQ(out.after, "next");
}

TEST_F(QmpSeries, AnErrorWithoutANumberIsOfTheOldest) {
  const SeriesOutcome out = with_a_second_refused(
      [](std::uint64_t) { return std::string("{\"error\": {\"class\": \"GenericError\", \"desc\": \"not read\"}}\n"); });
  EXPECT_EQ(out.answers[1], "qmp_error");
  EXPECT_EQ(out.answers[2], "third");
}

TEST_F(QmpSeries, AnswersOutOfTurnUnknownOrTwiceGiveTheVmmUp) {
  using Wrong = std::function<std::uint64_t(Peer&, const std::vector<json::object>&)>;
  for (const Wrong& wrong :
       {Wrong([](Peer&vmm, const auto&all) { return vmm.id_of(all[1]); }), Wrong([](Peer&, const auto&) { return std::uint64_t{99}; }),
        Wrong([](Peer&vmm, const auto&all) { return vmm.answer(all[0]), vmm.id_of(all[0]); })}) {
    const SeriesOutcome out = outcome([&](Peer& vmm) {
      vmm.greet();
      const auto all = hear_three(vmm);
      vmm.say(fmt::format("{{\"return\": {{}}, \"id\": {}}}\n", wrong(vmm, all)));
      vmm.hear();
    });
    EXPECT_EQ(out.answers[1], "qmp_protocol");
    EXPECT_EQ(out.answers[2], "qmp_protocol");
    EXPECT_EQ(out.after, "qmp_protocol");
  }
}

TEST_F(QmpSeries, SilenceGarbageAndTheEndBreakAllThatIsLeftOfIt) {
  QmpLimits limits;
  limits.answer = 100ms;
  const auto after_one = [](const std::function<void(Peer&)>& then) {
    return [then](Peer& vmm) {
      vmm.greet();
      const auto all = hear_three(vmm);
      vmm.answer(all[0], "\"first\"");
      then(vmm);
      vmm.hear();
    };
  };
  const std::pair<std::function<void(Peer&)>, std::string> ends[] = {{[](Peer&) {}, "qmp_timeout"},
                                                                     {[](Peer& vmm) { vmm.say("nonsense\n"); }, "qmp_protocol"},
                                                                     {[](Peer& vmm) {
                                                                        for (int i = 0; i < 40; ++i) vmm.say(std::string(8192, 'x'));
                                                                      },
                                                                      "qmp_protocol"},
                                                                     {[](Peer& vmm) { vmm.close(); }, "qmp_closed"}};
  for (const auto& [then, code] : ends) {
    const SeriesOutcome out = outcome(after_one(then), limits);
    EXPECT_EQ(out.answers[1], code);
    EXPECT_EQ(out.answers[2], code);
    EXPECT_EQ(out.after, code);
  }
}

TEST_F(QmpSeries, NobodyElsesCommandComesBetweenAndWhatNobodyWaitsForIsDropped) {
  play(
      [](Peer& vmm) {
        vmm.greet();
        const auto all = hear_three(vmm);
        vmm.answer(all[0]);
        std::this_thread::sleep_for(20ms);  // the other one may not be heard yet
        vmm.answer(all[1]);
        vmm.answer(all[2]);
        auto other = vmm.hear();
        EXPECT_EQ(other.at("execute").get_string(), "other");
        vmm.answer(other);
        const auto dropped = hear_three(vmm);
        auto next = vmm.hear();  // sent while those are not answered
        for (const auto& command : dropped) vmm.answer(command, "\"dropped\"");
        vmm.answer(next, "\"right\"");
      },
      [](Fd fd) {
        return [](Fd socket) -> asio::awaitable<void> {
          auto client = co_await QmpClient::open(std::move(socket));
          auto executor = co_await asio::this_coro::executor;
          std::vector<QmpCommand> commands{{"a"}, {"b"}, {"c"}};
          bool other = false;
          {
            std::vector<QmpCommand> first = commands;
            auto sent = co_await (*client)->send_together(std::move(first));
            spawn(executor, [](QmpClient& qmp, bool& done) -> asio::awaitable<void> {
              auto answer = co_await qmp.execute("other");
              EXPECT_TRUE(answer.has_value());
              done = true;
            }(**client, other));
            for (std::size_t i = 0; i < 3; ++i) {
              EXPECT_FALSE(other);
              auto answer = co_await sent->answer(i);
              EXPECT_TRUE(answer.has_value());
            }
            while (!other) co_await sleep_for(1ms);
          }
          {
            auto sent = co_await (*client)->send_together(std::move(commands));
            EXPECT_TRUE(sent.has_value());
          }
          auto next = co_await (*client)->execute("next");
          EXPECT_EQ(next.value().get_string(), "right");
        }(std::move(fd));
      });
}

TEST_F(Qmp, ACallersOwnLimitEndsItsWaitAlone) {
  play(
      [](Peer& vmm) {
        vmm.greet();
        auto slow = vmm.hear();
        auto next = vmm.hear();
        vmm.answer(slow, "\"late\"");
        vmm.answer(next, "\"right\"");
      },
      [](Fd fd) {
        return [](Fd socket) -> asio::awaitable<void> {
          auto client = co_await QmpClient::open(std::move(socket));
          auto late = co_await (*client)->execute("ringbuf-read", {}, nullptr, 20ms);
          EXPECT_EQ(late.error().code, "qmp_timeout");
          auto next = co_await (*client)->execute("query-status");
          EXPECT_EQ(next.value().get_string(), "right");
        }(std::move(fd));
      });
}

TEST_F(Qmp, SilenceIsATimeout) {
  QmpLimits limits;
  limits.greeting = limits.answer = 50ms;
  EXPECT_EQ(failure([](Peer& vmm) { vmm.hear(); }, limits), "qmp_timeout");  // no greeting
  EXPECT_EQ(failure(
                [](Peer& vmm) {
                  vmm.say(kGreeting);
                  vmm.hear();
                  vmm.hear();
                },
                limits),
            "qmp_timeout");  // no negotiation
  EXPECT_EQ(failure(
                [](Peer& vmm) {
                  vmm.greet();
                  vmm.hear();
                  vmm.hear();
                },
                limits),
            "qmp_timeout");
}

TEST_F(Qmp, AClosedConnectionIsAnError) {
  EXPECT_EQ(failure([](Peer& vmm) { vmm.close(); }), "qmp_closed");
  EXPECT_EQ(failure([](Peer& vmm) {
              vmm.greet();
              vmm.hear();
              vmm.close();
            }),
            "qmp_closed");
}

TEST_F(Qmp, NonsenseIsAnError) {
  for (const char* nonsense :
       {"hello\n", "[]\n", "{}\n", "{\"return\": 1}\n", "{\"return\": 1, \"id\": \"1\"}\n", "{\"return\": {}, \"id\": 99}\n",
        "{\"return\": 1, \"error\": {}, \"id\": 2}\n", "{\"event\": \"no such\"}\n", "{\"event\": 7}\n", "{\"error\": \"x\"}\n",
        "{\"QMP\": {}}\n", "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": -1, \"minor\": 2, \"major\": 7}}}}\n", "\xff\xfe\n",
        "{\"return\": {}\n", "{\"event\": \"X\", \"event\": \"X\"}\x01\n"})
    EXPECT_EQ(failure([&](Peer& vmm) {
                vmm.greet();
                vmm.hear();
                vmm.say(nonsense);
                vmm.hear();
              }),
              "qmp_protocol")
        << nonsense;
  EXPECT_EQ(failure([](Peer& vmm) {
              vmm.say("{\"event\": \"EARLY\"}\n");
              vmm.hear();
            }),
            "qmp_protocol");
  EXPECT_EQ(failure([](Peer& vmm) {
              vmm.say(kGreeting);
              vmm.say(kGreeting);
              vmm.hear();
              vmm.hear();
            }),
            "qmp_protocol");
  EXPECT_EQ(failure([](Peer& vmm) {
              vmm.greet();
              vmm.hear();
              vmm.say(std::string(20'000, '[') + "\n");
              vmm.hear();
            }),
            "qmp_protocol");
}

TEST_F(Qmp, AnEndlessLineAndAFloodAreErrors) {
  EXPECT_EQ(failure([](Peer& vmm) {
              vmm.greet();
              vmm.hear();
              for (int i = 0; i < 40; ++i) vmm.say(std::string(8192, 'x'));
            }),
            "qmp_protocol");
  EXPECT_EQ(failure([](Peer& vmm) {
              vmm.greet();
              for (int i = 0; i < 5000; ++i) vmm.say("{\"event\": \"RTC_CHANGE\"}\n");
            }),
            "qmp_flood");
}

TEST(QmpText, HostileTextBecomesPrintable) {
  EXPECT_EQ(printable("a\x1b[2J\tb\n\xc3\xa4", 100), "a?[2J b\n??");
  EXPECT_EQ(printable("0123456789", 4), "6789");
}

}  // namespace
}  // namespace space::vmm
