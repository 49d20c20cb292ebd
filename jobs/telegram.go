package jobs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirqueue/weir/internal/delivery"
)

// MaxParts bounds the messages that one notification becomes on a channel that takes short ones only.
const MaxParts = delivery.MaxParts

// Telegram is a recipient on the channel "telegram": a chat's number, which is negative for groups, or the @name of a
// public channel or group.
//
// A chat gets the subject as the first paragraph, then the text, as plain text; HTML is not used. A message that is
// longer than Telegram takes, which is 4096 UTF-16 units, is split when it is enqueued; each part is a step of the delivery
// with a receipt of its own, so that a try goes on at the first part that was not sent.
func Telegram(chatID string) Recipient {
	return Recipient{Channel: delivery.Telegram, Address: chatID}
}

var chatName = regexp.MustCompile(`^@[A-Za-z][A-Za-z0-9_]{4,31}$`)

// validateChat takes only what Telegram's documents call a chat id. A number has one spelling, so that the same chat is
// not two recipients.
func validateChat(field, address string) error {
	id, err := strconv.ParseInt(address, 10, 64)
	if err == nil && id != 0 && strconv.FormatInt(id, 10) == address || chatName.MatchString(address) {
		return nil
	}
	return invalid(field, address, "a chat's number such as -1001234567890, or its name of 5 to 32 characters such as @name")
}

// validateTelegram checks what Telegram needs of a notification, if it has a recipient there.
func (n *Notification) validateTelegram() error {
	onTelegram := slices.ContainsFunc(n.To, func(r Recipient) bool { return r.Channel == delivery.Telegram })
	if !onTelegram || len(n.Text) > MaxBodyBytes { // too long is a fault already
		return nil
	}
	if strings.TrimSpace(n.Text) == "" {
		return invalid("Notification.Text", n.Text, "not empty where a recipient is on telegram, which gets no HTML")
	}
	if parts := len(n.telegramParts()); parts > MaxParts {
		return invalid("Notification.Text", fmt.Sprintf("%d telegram messages", parts), fmt.Sprintf("at most %d telegram messages", MaxParts))
	}
	return nil
}

// telegramParts are the messages of n on Telegram.
func (n *Notification) telegramParts() []string {
	return delivery.Split(delivery.PlainText(n.Subject, n.Text), delivery.TelegramLimit)
}
