// Slabs of a read on their way: no thread waits at the end of one, few are open at a time, and an
// error anywhere ends it for all threads.

#include "engine/device/slabs_in_flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "headrace/config.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr int kThreads = 6;
constexpr std::size_t kSlabs = 20;
constexpr int kPieces = 15;  // of a slab

enum class Step { look, fetch, submit, finish };

// What happened to slab `i`.
struct Story {
  std::atomic<int> fetched{0};  // pieces
  std::atomic<int> inside{0};
  std::atomic<int> submitted{0};
  std::atomic<int> finished{0};
};

class SlabsInFlightTest : public testing::Test, protected SlabsInFlight::Source {
 protected:
  SlabsInFlightTest() : stories_(kSlabs) {}
  void SetUp() override {
    Config many = before_;
    many.threads = kThreads;
    set_config(many);
  }
  void TearDown() override { set_config(before_); }

  void run(std::size_t threads = kThreads, bool looks_ahead = true) {
    Request request(options_, nullptr);
    SlabsInFlight slabs(*this, request, looks_ahead);
    slabs_ = &slabs;
    slabs.run(threads);
  }

  // Called in each step, of fetch for each piece.
  std::function<void(Step, std::size_t slab)> at_ = [](Step, std::size_t) {};
  ReadOptions options_;
  std::vector<Story> stories_;
  std::atomic<std::size_t> looked_{0};
  std::atomic<std::size_t> begun_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<std::size_t> most_open_{0};
  SlabsInFlight* slabs_ = nullptr;

 private:
  class Slab final : public SlabsInFlight::Slab {
   public:
    Slab(SlabsInFlightTest& test, std::size_t number)
        : test_(test), number_(number), story_(test.stories_[number]) {}

    std::size_t threads() const override { return 2; }
    void fetch() override {
      ++story_.inside;
      for (int piece; (piece = next_++) < kPieces;) {
        if (piece == 0) test_.note_open();
        test_.slabs_->check();
        test_.at_(Step::fetch, number_);
        ++story_.fetched;
      }
      --story_.inside;
    }
    void submit() override {
      EXPECT_EQ(story_.inside, 0);
      EXPECT_EQ(story_.fetched, kPieces);
      test_.at_(Step::submit, number_);
      ++story_.submitted;
    }
    void finish() override {
      EXPECT_EQ(story_.submitted, 1);
      EXPECT_EQ(test_.done_, number_) << "in order";
      test_.at_(Step::finish, number_);
      ++story_.finished;
      ++test_.done_;
    }

   private:
    SlabsInFlightTest& test_;
    const std::size_t number_;
    Story& story_;
    std::atomic<int> next_{0};
  };

  std::unique_ptr<SlabsInFlight::Slab> next() override {
    const std::size_t number = looked_++;
    at_(Step::look, number);
    return number < kSlabs ? std::make_unique<Slab>(*this, number) : nullptr;
  }

  void note_open() {
    const std::size_t open = ++begun_ - done_;
    std::size_t most = most_open_;
    while (open > most && !most_open_.compare_exchange_weak(most, open)) {
    }
  }

  const Config before_ = config();
};

// Until it is so, or too long.
bool comes_true(const std::function<bool()>& so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_F(SlabsInFlightTest, TakesEachSlabThroughEachStepOnce) {
  for (const std::size_t threads : {std::size_t{1}, std::size_t{2}, std::size_t{kThreads}}) {
    for (const bool looks_ahead : {false, true}) {
      stories_ = std::vector<Story>(kSlabs);
      looked_ = begun_ = done_ = most_open_ = 0;
      run(threads, looks_ahead);
      EXPECT_EQ(looked_, kSlabs + 1);
      EXPECT_LE(most_open_, SlabsInFlight::kOpen);
      for (const Story& story : stories_) {
        EXPECT_EQ(story.fetched, kPieces);
        EXPECT_EQ(story.submitted, 1);
        EXPECT_EQ(story.finished, 1);
      }
    }
  }
}

TEST_F(SlabsInFlightTest, NobodyWaitsForTheSlowestOfASlab) {
  std::atomic<bool> is_first{true};
  bool others_went_on = false;
  at_ = [&](Step step, std::size_t slab) {
    if (step != Step::fetch || slab != 0 || !is_first.exchange(false)) return;
    others_went_on = comes_true([&] {
      const auto next = std::span(stories_).subspan(1, SlabsInFlight::kOpen - 1);
      return std::ranges::all_of(next, [](const Story& story) { return story.submitted == 1; }) &&
             looked_ == SlabsInFlight::kOpen + 1;
    });
  };
  run();
  EXPECT_TRUE(others_went_on);
  EXPECT_LE(most_open_, SlabsInFlight::kOpen);
}

TEST_F(SlabsInFlightTest, OpensNoMoreBeforeTheOldestIsFinished) {
  bool one_more = false;
  at_ = [&](Step step, std::size_t slab) {
    if (step != Step::finish || slab != 0) return;
    comes_true([&] { return stories_[SlabsInFlight::kOpen - 1].submitted == 1; });
    one_more = stories_[SlabsInFlight::kOpen].fetched > 0;
  };
  run();
  EXPECT_FALSE(one_more);
}

TEST_F(SlabsInFlightTest, LooksAheadOnlyWhereItMay) {
  at_ = [&](Step step, std::size_t slab) {
    if (step != Step::fetch || slab == 0) return;
    EXPECT_LE(looked_, slab + 1);
  };
  run(1, false);
}

TEST_F(SlabsInFlightTest, EndsWithTheFirstErrorOfAnyStep) {
  for (const Step failing : {Step::look, Step::fetch, Step::submit, Step::finish}) {
    for (const std::size_t bad : {std::size_t{0}, std::size_t{1}, std::size_t{9}}) {
      for (const std::size_t threads : {std::size_t{1}, std::size_t{kThreads}}) {
        stories_ = std::vector<Story>(kSlabs);
        looked_ = begun_ = done_ = 0;
        at_ = [&](Step step, std::size_t slab) {
          if (step == failing && slab == bad) throw Error(ErrorCode::corrupt, "the one");
        };
        try {
          run(threads);
          ADD_FAILURE() << "nothing was thrown";
        } catch (const Error& error) {
          EXPECT_STREQ(error.what(), "the one");
        }
        EXPECT_LT(begun_, kSlabs) << "it went on";
      }
    }
  }
}

// Whoever is in the middle of a long fetch hears of it.
TEST_F(SlabsInFlightTest, AnErrorEndsTheFetchesOfOthers) {
  std::atomic<bool> is_first{true};
  at_ = [&](Step step, std::size_t slab) {
    if (step != Step::fetch) return;
    if (slab == 0) {
      if (!is_first.exchange(false)) return;
      comes_true([&] { return stories_[1].inside > 0; });
      throw Error(ErrorCode::corrupt, "the one");
    }
    for (;;) {
      slabs_->check();
      std::this_thread::yield();
    }
  };
  try {
    run();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the one");
  }
}

struct Interrupt {};

TEST_F(SlabsInFlightTest, EndsWithWhatThePollThrows) {
  options_.poll = [&] {
    if (done_ > 2) throw Interrupt();
  };
  // From the fourth slab on helpers wait for an end, and so does who gets to the last slab.
  const auto caller = std::this_thread::get_id();
  at_ = [&](Step step, std::size_t slab) {
    if (step != Step::fetch || slab < 4) return;
    if (slab + 1 < kSlabs && std::this_thread::get_id() == caller) return;
    for (;;) {
      slabs_->check();
      std::this_thread::yield();
    }
  };
  EXPECT_THROW(run(), Interrupt);
}

TEST_F(SlabsInFlightTest, EndsWhenItIsCancelled) {
  std::atomic<bool> cancel{false};
  at_ = [&](Step step, std::size_t slab) {
    if (step == Step::submit && slab == 4) cancel = true;
  };
  Request request(options_, &cancel);
  SlabsInFlight slabs(*this, request, true);
  slabs_ = &slabs;
  try {
    slabs.run(kThreads);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
}

}  // namespace
}  // namespace headrace
