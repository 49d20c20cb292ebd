// Package email is the channel that sends mail through an SMTP server.
//
// # One try, one dialog, one bound
//
// A Send is one SMTP dialog for one recipient. SendTimeout and the context bound it as a whole: when either ends, the
// TCP connection is closed under whatever the dialog is doing, be it the TLS handshake or the ninth byte of a reply.
// Nothing is tried again here; that is for the worker to decide, which alone knows what is recorded.
//
// A mail is the same bytes on every try: its Message-ID is <run id.step@domain of From>, its Date the time at which the
// notification was written.
//
// # What an error means
//
// The server has the mail once it answers 250 to the final dot. Before the dot has left this process, the mail was
// surely not taken. In between nobody knows.
//
//	what happened                                          error                  code
//	the message cannot be a mail: line breaks or NUL in    channel.Refused        smtp_header_injection
//	  subject or address, another address than             (nothing is dialed)    smtp_address_invalid
//	  ada@example.com, invalid UTF-8 or NUL in a text,                            smtp_text_invalid
//	  no run id or no time                                                        smtp_message_invalid
//	all MaxConns connections busy for WaitTimeout          channel.Throttled      smtp_busy
//	the name is unknown, nobody listens                    channel.NotSent        smtp_dns, smtp_connect
//	ctx or SendTimeout ended before the dot                channel.NotSent        smtp_canceled, smtp_timeout
//	the connection broke, or the answer was not SMTP,      channel.NotSent        smtp_connection_lost,
//	  before the dot                                                              smtp_protocol
//	the same after the dot was, or may have been, sent     *UnknownOutcome        smtp_canceled_after_data,
//	                                                                              smtp_timeout_after_data,
//	                                                                              smtp_connection_lost_after_data,
//	                                                                              smtp_protocol_after_data
//	no STARTTLS, a certificate for another name, no TLS    channel.Misconfigured  smtp_starttls_missing,
//	  at all, no common way to authenticate                                       smtp_tls_certificate, smtp_tls,
//	                                                                              smtp_auth_unsupported, smtp_auth
//	the Channel is closed                                  channel.NotSent        smtp_closed
//	the server refused                                     as below               smtp_550_5.1.1, or smtp_550
//
// # What a refusal means
//
// The first line that fits decides. An enhanced code counts only if its class is that of the code.
//
//	421 at any stage; 4yz with 4.7.z, which is greylisting and rate limits;     channel.Throttled
//	  4.3.2 and 4.4.5, by which the whole server takes nothing; 454 to AUTH
//	any other 4yz                                                               channel.Temporary
//	530, 534, 535, 538: the server wants other credentials                      channel.Misconfigured
//	500, 502, 503: the server does not know the command                         channel.Misconfigured
//	5.1.7, 5.1.8, 5.7.8 to 5.7.11, 5.7.20 to 5.7.27: it is about our sender,    channel.Misconfigured
//	  its password, its SPF, DKIM or reverse DNS
//	552 to MAIL FROM: the mail is too big                                       channel.Refused
//	any other 5yz before RCPT TO: greeting, EHLO, TLS, AUTH, MAIL FROM          channel.Misconfigured
//	5.2.2 to RCPT TO or the mail: a full mailbox, which RFC 3463 calls a        channel.Temporary
//	  persistent transient failure; the budget of failures ends it
//	any other 5yz to RCPT TO, DATA or the mail                                  channel.Refused
//
// A greylisting server that gives no enhanced code, or 4.2.0, cannot be told from a broken one without reading its
// prose, so it counts as temporary. The same holds for 550 5.7.1, which some servers use for "relaying denied" and
// others for "this recipient does not want you": it is refused.
//
// # Connections
//
// MaxConns limits them, and a few are kept for the next mail. A kept connection is asked with NOOP before it is used,
// and replaced once if the server has hung up. After any error a connection is never used again, since an answer that
// is still on its way would be taken for the answer to the next command. After an error in the link it is reset
// without a word; after a refusal it is left with QUIT, in the background.
package email
