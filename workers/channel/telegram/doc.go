// Package telegram is the channel that sends messages by a Telegram bot.
//
// # One try, one request
//
// A Send is one sendMessage for one chat, as plain text: the subject, if there is one, is its first paragraph. Timeout and
// the context bound it as a whole. Nothing is tried again here, nor in the HTTP layer beneath: sendMessage has no
// idempotency key, so only the worker, which knows what is recorded, may decide to send once more. The one request that is
// sent twice is one that Telegram answered with the number that a group has now; it was not taken then.
//
// # What an error means
//
//	what happened                                           error                  code
//	no number and no @name, no text, invalid UTF-8          channel.Refused        telegram_address_invalid,
//	                                                        (nothing is asked)     telegram_text_invalid
//	the chat or the bot must wait; see below                channel.Throttled      telegram_paced
//	nobody listens, the name is unknown, no TLS; Timeout    channel.NotSent        telegram_connect, telegram_canceled,
//	  or the context ended before there was a connection                           telegram_timeout
//	the certificate is for another name                     channel.Misconfigured  telegram_tls_certificate
//	429, 420                                                channel.Throttled      telegram_429
//	400: no such chat, too long, …; 403: blocked, kicked;   channel.Refused        telegram_400, telegram_403, …
//	  413
//	400 with a new number for the group, twice in a row     channel.Refused        telegram_migration_loop
//	401, 404: a wrong token                                 channel.Misconfigured  telegram_401, telegram_404
//	any other refusal by Telegram                           channel.Temporary      telegram_500, …
//	a gateway's page instead of an answer: 429              channel.Throttled      telegram_http_429
//	  5xx but 504                                           channel.Temporary      telegram_http_502, …
//	  3xx and 4xx but 408: another server than Telegram's   channel.Misconfigured  telegram_http_302, …
//	anything else after there was a connection: it broke,   a plain error:
//	  or no answer came in time, or 408, 504, or no JSON      nobody knows
//
// Texts and codes never hold the token.
//
// # Waiting
//
// Telegram wants about one message a second for each chat, and 30 in all. A Send waits for its turn for two seconds at
// most, and for each chat one Send at a time; all others are Throttled, each to a time of its own, so that a flood
// for one chat neither takes the workers of others nor comes back all at once. What a 429 asks for is remembered for its
// chat, in this process, for as long as it lasts: nobody asks again before, and other chats go on.
package telegram
