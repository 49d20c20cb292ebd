package telegram

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-telegram/bot"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/workers/channel"
)

var errTimeout = fmt.Errorf("telegram: Timeout passed: %w", context.DeadlineExceeded)

// Channel sends by one bot. It is safe for concurrent use. Close it after the last Send.
type Channel struct {
	cfg  Config
	http *http.Client
	bot  *bot.Bot
	pace *pace

	mu sync.Mutex
	// moved is where groups went, by the address that they had.
	moved map[chatID]chatID
}

var _ channel.Channel = (*Channel)(nil)

// New checks cfg and reports all of its faults at once, as channel.Misconfigured. It does not connect.
func New(cfg Config) (*Channel, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Channel{cfg: cfg, http: newHTTPClient(cfg), pace: newPace(cfg), moved: map[chatID]chatID{}}
	var err error
	c.bot, err = bot.New(cfg.Token, bot.WithSkipGetMe(), bot.WithServerURL(cfg.ServerURL),
		bot.WithHTTPClient(cfg.Timeout, wire{client: c.http, token: cfg.Token}),
		bot.WithErrorsHandler(func(error) {}), // about pipes in memory; its own would write to the standard logger
	)
	if err != nil {
		return nil, channel.Misconfigured("telegram_config", errors.New("telegram: "+redact(cfg.Token, err)))
	}
	return c, nil
}

// Effect is AtLeastOnce: Telegram has no idempotency keys.
func (c *Channel) Effect() channel.Effect { return channel.AtLeastOnce }

// Send sends one message, or one part of one, to one chat. It ends within Timeout, and at once when ctx ends.
//
// A nil error means that Telegram took the message. The reference is "<chat>/<message id>", with the number that the chat
// has now. See the package's documentation for what each error means.
func (c *Channel) Send(ctx context.Context, m channel.Message) (channel.Sent, error) {
	asked, ok := parseChat(m.Address)
	if !ok {
		return channel.Sent{}, channel.Refused("telegram_address_invalid", errors.New("telegram: the address is no chat id"))
	}
	text := delivery.PlainText(m.Subject, m.Text)
	if text == "" || !utf8.ValidString(text) {
		return channel.Sent{}, channel.Refused("telegram_text_invalid", errors.New("telegram: the text is empty or not UTF-8"))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	defer cancel()

	chat := c.whereIs(asked)
	sent, err := c.sendTo(ctx, chat, text)
	var moved *movedError
	if errors.As(err, &moved) {
		// Followed once: a second answer of this sort in one Send leads nowhere.
		if moved.to == chat || moved.to == asked {
			return channel.Sent{}, c.loops(asked, err)
		}
		c.remember(asked, chat, moved.to)
		if sent, err = c.sendTo(ctx, moved.to, text); errors.As(err, &moved) {
			return channel.Sent{}, c.loops(asked, err)
		}
	}
	return sent, err
}

// Close closes idle connections.
func (c *Channel) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// sendTo waits for the chat's turn and asks once.
func (c *Channel) sendTo(ctx context.Context, chat chatID, text string) (channel.Sent, error) {
	if err := c.pace.wait(ctx, chat); err != nil {
		return channel.Sent{}, err
	}
	ctx, x := begin(ctx)
	msg, err := c.bot.SendMessage(ctx, &bot.SendMessageParams{ChatID: chat.param(), Text: text})
	if err == nil {
		return channel.Sent{ExternalRef: fmt.Sprintf("%d/%d", msg.Chat.ID, msg.ID)}, nil
	}
	if x.ok { // it was taken, and said so in a way that the library cannot read
		return channel.Sent{ExternalRef: string(chat) + "/?"}, nil
	}
	err = judge(ctx, c.cfg.Token, x, err)
	var throttled *channel.Error
	if errors.As(err, &throttled) && throttled.Class == channel.ClassThrottled && throttled.After > 0 {
		c.pace.block(chat, throttled.After)
	}
	return channel.Sent{}, err
}

func (c *Channel) whereIs(asked chatID) chatID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, ok := c.moved[asked]; ok {
		return now
	}
	return asked
}

func (c *Channel) remember(asked, last, now chatID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved[asked], c.moved[last] = now, now
}

// loops ends a message whose chat is said to be elsewhere everywhere, and forgets what was learned about it.
func (c *Channel) loops(asked chatID, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.moved, asked)
	return channel.Refused("telegram_migration_loop", fmt.Errorf("telegram: the group's new number leads to no group: %w", err))
}

// chatID is a chat's number, or its @name.
type chatID string

var chatName = regexp.MustCompile(`^@[A-Za-z][A-Za-z0-9_]{4,31}$`)

func parseChat(address string) (chatID, bool) {
	id, err := strconv.ParseInt(address, 10, 64)
	if err == nil && id != 0 {
		return chatNumber(id), true
	}
	return chatID(address), chatName.MatchString(address)
}

func chatNumber(id int64) chatID { return chatID(strconv.FormatInt(id, 10)) }

// param is the id as the library wants it.
func (c chatID) param() any {
	if id, err := strconv.ParseInt(string(c), 10, 64); err == nil {
		return id
	}
	return string(c)
}

// movedError says that a group has another number now.
type movedError struct {
	to   chatID
	text string
}

func (e *movedError) Error() string { return e.text }

// after turns what Telegram asks for into a duration, however much it is.
func after(seconds int) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(max(int64(seconds), 0), most)) * time.Second
}
