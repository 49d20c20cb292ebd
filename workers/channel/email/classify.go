package email

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirqueue/weir/workers/channel"
)

// reply is a 4yz or 5yz answer of the server.
type reply struct {
	code int
	// enhanced is the enhanced status code of RFC 3463, such as "5.1.1"; empty if there is none.
	enhanced string
	text     string
}

// errorCode is "smtp_550_5.1.1". It holds nothing that the server chose freely.
func (r reply) errorCode() string {
	if r.enhanced == "" {
		return fmt.Sprintf("smtp_%d", r.code)
	}
	return fmt.Sprintf("smtp_%d_%s", r.code, r.enhanced)
}

var (
	// authCodes say that the server wants other credentials, or a safer connection for them. RFC 4954, RFC 5248.
	authCodes = []int{530, 534, 535, 538}
	// commandCodes say that the server does not know what every server knows. 504 is not among them: to RCPT TO, some
	// servers say with it that the recipient's domain is incomplete.
	commandCodes = []int{500, 502, 503}
	// senderCodes are about the sender and its domain: its address, its credentials, and what SPF, DKIM and reverse
	// DNS say about it. RFC 3463, RFC 4954, RFC 7372, RFC 7505.
	senderCodes = []string{
		"5.1.7", "5.1.8", "5.7.8", "5.7.9", "5.7.10", "5.7.11",
		"5.7.20", "5.7.21", "5.7.22", "5.7.23", "5.7.24", "5.7.25", "5.7.26", "5.7.27",
	}
	// busyCodes say that the whole server takes nothing now.
	busyCodes = []string{"4.3.2", "4.4.5"}
)

// classify decides what a refusal means. The table in the package's documentation says the same in words.
func classify(at stage, r reply) channel.Class {
	if r.code/100 == 4 {
		throttled := r.code == 421 || strings.HasPrefix(r.enhanced, "4.7.") || slices.Contains(busyCodes, r.enhanced) ||
			r.code == 454 && at == stageAuth
		if throttled {
			return channel.ClassThrottled
		}
		return channel.ClassTemporary
	}
	switch {
	case slices.Contains(authCodes, r.code), slices.Contains(commandCodes, r.code), slices.Contains(senderCodes, r.enhanced):
		return channel.ClassMisconfigured
	case at == stageMail:
		// 552 is about the size of the mail, all others about who sends it.
		if r.code == 552 {
			return channel.ClassRefused
		}
		return channel.ClassMisconfigured
	case at != stageRcpt && at != stageData && at != stageAnswer:
		return channel.ClassMisconfigured
	case r.enhanced == "5.2.2":
		// RFC 3463 calls a full mailbox "a persistent transient failure": its owner can empty it. The budget ends it.
		return channel.ClassTemporary
	}
	return channel.ClassRefused
}

// isEnhanced says whether s is an enhanced status code of the same class as code.
func isEnhanced(s string, code int) bool {
	parts := strings.Split(s, ".")
	if len(parts) != 3 || parts[0] != fmt.Sprint(code/100) {
		return false
	}
	for _, p := range parts[1:] {
		if p == "" || len(p) > 3 || strings.Trim(p, "0123456789") != "" {
			return false
		}
	}
	return true
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
