package api

import (
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-project/sluice/room"
)

// The types below describe objects in the OpenAPI document that are read or written
// by code of their own. Tests compare them with what is answered.

type inRooms struct {
	After string `query:"after" doc:"What the page before gave as next."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"The most rooms of a page."`
}

type inSettings struct {
	RoomPath
	Body room.Settings
}

type inHealth struct {
	RoomPath
	Body healthView
}

type healthView struct {
	Utilization float64 `json:"utilization" minimum:"0" maximum:"100" doc:"How much of the load that the upstream can serve well it has: 1 is all of it."`
}

type inCodes struct {
	RoomPath
	Body codesOrder
}

type inRevoke struct {
	RoomPath
	Body *revocationView
}

type revocationView struct {
	Visitor string `json:"visitor,omitempty" maxLength:"256" doc:"The visitor's key. Give this or the ticket."`
	Ticket  string `json:"ticket,omitempty"`
}

type inEnter struct {
	RoomPath
	Token         string `header:"Sluice-Token" doc:"A JWT in which the shop says who the visitor is: sub is the visitor's key."`
	TokenInQuery  string `query:"sluice_token" doc:"The same, for a link."`
	TokenInCookie string `cookie:"sluice_token" doc:"The same, for pages of this host."`
	Body          *entryView
}

type entryView struct {
	Visitor *string `json:"visitor,omitempty" nullable:"true" maxLength:"256" doc:"A key, such as a user's id: one key has one place. It needs a token if the server has keys for tokens, or the request comes to a public listener, from a page or through a trusted proxy."`
	Code    *string `json:"code,omitempty" nullable:"true" maxLength:"64" doc:"A code that was made for the room, in place of a key: it has one place at a time, in its lane."`
}

type inAsk struct {
	RoomPath
	Wait     int64 `query:"wait_ms" minimum:"0" maximum:"30000" doc:"How long to wait for news: a status other than waiting, or another position. The server may answer earlier."`
	Position int64 `query:"position" minimum:"0" doc:"The last position that was seen, 0 for null. Default: that at the time of the request."`
}

type inWatch struct {
	RoomPath
	Ticket string `query:"ticket" doc:"For EventSource, which sets no headers."`
}

type (
	outRooms   struct{ Body roomsView }
	outRoom    struct{ Body roomView }
	outLottery struct{ Body lotteryView }
	outPlace   struct{ Body placeView }
	outCodes   struct{ Body codesView }
)

type placeView struct {
	Ticket        string     `json:"ticket" doc:"The ticket to show from now on."`
	ID            int64      `json:"id" doc:"The visitor's number in the room."`
	Status        string     `json:"status" enum:"waiting,inside"`
	Position      *int64     `json:"position" nullable:"true" doc:"From 1; null inside, and before a lottery is drawn."`
	Ahead         *int64     `json:"ahead" nullable:"true" doc:"How many visitors are before this one: position - 1."`
	EstimatedWait *waitView  `json:"estimated_wait_ms" doc:"With a probability of about 90 % the wait is between low and high; null if that is not known."`
	NextPoll      int64      `json:"next_poll_ms" doc:"When to ask again."`
	Pass          *string    `json:"pass" nullable:"true" doc:"A JWT, if the visitor is inside. It ends after a minute at most, and each answer has a new one."`
	PassExpiresAt *time.Time `json:"pass_expires_at" nullable:"true" doc:"When the visit ends."`
	Lane          string     `json:"lane,omitempty" doc:"The lane in which the visitor waits, in a room with lanes: position and ahead are those in it."`
	Draw          int64      `json:"draw,omitempty" doc:"The visitor's number in the lottery, once it is drawn."`
}

type waitView struct {
	_    struct{} `nullable:"true"`
	Low  int64    `json:"low"`
	High int64    `json:"high"`
}

type keySetView struct {
	Keys []map[string]any `json:"keys" nullable:"false"`
}

// orAuto is a number of visitors, or "auto".
type orAuto int64

// Schema implements huma.SchemaProvider.
func (orAuto) Schema(huma.Registry) *huma.Schema {
	least, most := 1.0, 10_000_000.0
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeInteger, Format: "int64", Minimum: &least, Maximum: &most},
		{Type: huma.TypeString, Enum: []any{"auto"}},
	}}
}

type settingsView struct {
	Mode     string `json:"mode" enum:"teller,park" doc:"teller: at most capacity are inside, and when one leaves the next enters. park: batch enter every interval_ms, each for stay_ms."`
	Capacity orAuto `json:"capacity,omitempty" doc:"The most visitors inside, or \"auto\". teller only, required."`
	PassTTL  int64  `json:"pass_ttl_ms,omitempty" minimum:"100" maximum:"604800000" doc:"How long a pass lasts. teller only. Default 600000."`
	Pass     string `json:"pass,omitempty" enum:"sliding,fixed" doc:"Whether using a pass extends it. teller only. Default sliding."`
	Renewals int64  `json:"renewals,omitempty" minimum:"0" maximum:"1000" doc:"How often a visitor may renew a fixed pass. teller only. Default 0."`
	Batch    orAuto `json:"batch,omitempty" doc:"How many enter at each tick, or \"auto\". park only, required."`
	Interval int64  `json:"interval_ms,omitempty" minimum:"100" maximum:"86400000" doc:"The time between ticks. park only, required."`
	Stay     int64  `json:"stay_ms,omitempty" minimum:"100" maximum:"604800000" doc:"How long after its tick each pass ends. park only, required."`

	AutoMin      int64      `json:"auto_min,omitempty" minimum:"1" maximum:"10000000" doc:"The least capacity or batch that is auto. Default 10."`
	AutoMax      int64      `json:"auto_max,omitempty" minimum:"1" maximum:"10000000" doc:"The most. Default 100000."`
	ClaimWindow  int64      `json:"claim_window_ms,omitempty" minimum:"100" maximum:"600000" doc:"How long a called visitor has to claim the slot. Default 10000."`
	AbandonAfter int64      `json:"abandon_after_ms,omitempty" minimum:"100" maximum:"86400000" doc:"How long a visitor may be silent before it is skipped when called. Default 120000."`
	Grace        int64      `json:"grace_ms,omitempty" minimum:"0" maximum:"86400000" doc:"For how long after that the place is kept and counted. Default 180000."`
	MaxWaiting   int64      `json:"max_waiting,omitempty" minimum:"1" maximum:"10000000" doc:"How many may wait; more are refused. Default 1000000."`
	Method       string     `json:"method,omitempty" enum:"fifo,lottery" doc:"The order of visitors who came before opens_at. Default fifo."`
	OpensAt      *time.Time `json:"opens_at,omitempty" doc:"When visitors are admitted from. Default: at once."`
	PrequeueFrom *time.Time `json:"prequeue_from,omitempty" doc:"When visitors may come to wait for opens_at. Default: at any time."`
	EndsAt       *time.Time `json:"ends_at,omitempty" doc:"When admission ends. Default: never."`

	Repeats  string `json:"repeats,omitempty" maxLength:"256" doc:"When each of many events opens: a cron expression of five fields, @daily or its like, or @every 90m since the room was created. Instead of opens_at, prequeue_from and ends_at."`
	TimeZone string `json:"time_zone,omitempty" maxLength:"64" doc:"The IANA name of the time zone of repeats. Default UTC."`
	Lasts    int64  `json:"lasts_ms,omitempty" minimum:"1000" maximum:"31622400000" doc:"How long after its opening each event ends. Required with repeats."`
	Prequeue int64  `json:"prequeue_ms,omitempty" minimum:"1000" maximum:"31622400000" doc:"How long before each opening visitors may come to wait for it. Default: at any time."`

	Lanes          string     `json:"lanes,omitempty" maxLength:"256" doc:"Lines of their own with shares of the calls, as in vip=20,members=30,public=50. A visitor is in the lane that its token names, or in the last. Default: one line."`
	OnStoreFailure string     `json:"on_store_failure,omitempty" enum:"open,closed" doc:"What a gate does when the store does not answer. Default closed."`
	Routes         []ruleView `json:"routes,omitempty" nullable:"false" maxItems:"100" doc:"The requests that need a pass at a gate. Default: all."`
	Bypass         []ruleView `json:"bypass,omitempty" nullable:"false" maxItems:"100" doc:"The requests that need none, whatever routes say."`
	JoinsPerMinute int64      `json:"joins_per_minute,omitempty" minimum:"0" maximum:"1000000" doc:"How many visitors may enter from one client address (of IPv6, one /64, and four times as many from one /48) in a minute, at each instance; 0: any number. Default: 600, except from this machine, private networks and trusted proxies."`
	BindTickets    bool       `json:"bind_tickets,omitempty" doc:"Binds each ticket, and its passes, to the client address that it was given to. Default false."`
	InvitationOnly bool       `json:"invitation_only,omitempty" doc:"Refuses visitors without a key or a code, or without a token where the server has keys for tokens. Default false."`
	Codes          bool       `json:"codes,omitempty" doc:"Accepts codes that were made for the room: their visitors are in the codes' lane, and invited. Needs lanes or invitation_only. Default false."`
}

// ruleView matches requests; an absent member matches all.
type ruleView struct {
	Host   string `json:"host,omitempty" doc:"A host name without port, or *.example.com for all below it. Default: all."`
	Path   string `json:"path,omitempty" doc:"One path, or with /* at its end itself and all below it. Default: all."`
	Method string `json:"method,omitempty" doc:"An HTTP method. Default: all."`
}
