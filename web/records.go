package web

import (
	"bytes"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

const (
	// readBytes is how much one read asks for, and maxReads how many a page makes: a view may hide
	// all that a read has found.
	readBytes = 256 << 10
	maxReads  = 16
	// maxHeaders is how many headers of one record a page shows.
	maxHeaders = 20
)

// recordRow is a record as a page shows it.
type recordRow struct {
	Offset     int64
	Time       string
	Key, Value content
	Headers    []headerRow
	// MoreHeaders counts those that are not shown.
	MoreHeaders int

	at time.Time
}

type headerRow struct {
	Name  string
	Value content
}

type recordPage struct {
	Sub        []link
	Topic, To  string
	Partition  int32
	Partitions int
	Offset, At string
	// Key and Find are the filter: see filter.
	Key, Find          string
	Start, End         int64
	Records            []recordRow
	Older, Newer, Last string
	// Looked says which offsets a page with a filter has looked at.
	Looked string
	// Node leads the partition, if it is another one.
	Node     int32
	NodeLink string
}

// filter selects records by their key, and by a text that their key, their value or a header has; empty ones select all.
type filter struct{ key, find string }

func (f filter) empty() bool { return f == filter{} }

func (f filter) matches(record *topic.Record) bool {
	if f.key != "" && string(record.Key) != f.key {
		return false
	}
	has := func(text []byte) bool { return bytes.Contains(text, []byte(f.find)) }
	return has(record.Key) || has(record.Value) || slices.ContainsFunc(record.Headers, func(h topic.Header) bool { return has(h.Value) })
}

// query returns the filter as the end of an address.
func (f filter) query() string {
	if f.empty() {
		return ""
	}
	return "&" + url.Values{"key": {f.key}, "find": {f.find}}.Encode()
}

func recordsPath(name string, partition int32) string {
	return Prefix + "topics/records?" + url.Values{"name": {name}, "partition": {strconv.Itoa(int(partition))}}.Encode()
}

func (d *Dashboard) records(r *request) (string, any, error) {
	t, err := d.readable(r)
	if err != nil {
		return "", nil, err
	}
	partition, err := strconv.ParseInt(r.get("partition"), 10, 32)
	if err != nil && r.get("partition") != "" {
		return "", nil, topic.ErrNoPartition
	}
	p, err := t.Find(int32(partition))
	if err != nil {
		return "", nil, err
	}
	page := recordPage{
		Sub: topicSub(r), Topic: t.Name(), To: topicPath(t.Name()), Partition: p.Number(), Partitions: len(t.Partitions()), Offset: r.get("offset"), At: r.get("time"),
		Key: r.get("key"), Find: r.get("find"),
	}
	only := filter{page.Key, page.Find}
	title := r.t("records.title", t.Name(), p.Number())
	if leader := p.Leader(); leader != d.options.Topics.Node() {
		page.Node, page.NodeLink = leader, d.elsewhere(leader)+r.URL.RequestURI()
		return title, page, nil
	}
	ends := p.Ends()
	page.Start, page.End = ends.Start, ends.HighWatermark
	from, err := d.from(r, p, ends, only)
	if err != nil {
		return "", nil, err
	}
	records, next, err := d.read(r, t, p.Number(), from, only)
	page.Records = records
	at := recordsPath(t.Name(), p.Number()) + only.query()
	if from > ends.Start && only.empty() {
		page.Older = at + "&offset=" + strconv.FormatInt(max(ends.Start, from-pageSize), 10)
	}
	if next < ends.HighWatermark {
		page.Newer = at + "&offset=" + strconv.FormatInt(next, 10)
	}
	if only.empty() {
		page.Last = at
	} else {
		page.Looked = r.t("records.looked", number(from), number(next))
	}
	return title, page, err
}

// from returns the offset at which the page begins: that of the request, or of its time, or so that it
// has the last records; with a filter, the first offset.
func (d *Dashboard) from(r *request, p *broker.Partition, ends broker.Ends, only filter) (int64, error) {
	from := ends.HighWatermark - pageSize
	if !only.empty() {
		from = ends.Start
	}
	if text := r.get("offset"); text != "" {
		offset, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, &statusError{400, errors.New("offset " + strconv.Quote(text) + ": want a whole number")}
		}
		from = offset
	} else if text := r.get("time"); text != "" {
		at, err := parseTime(text)
		if err != nil {
			return 0, err
		}
		if from, _, err = p.OffsetAt(r.Context(), at.UnixMilli()); err != nil {
			return 0, err
		}
		if from < 0 { // no record is that late
			from = ends.HighWatermark
		}
	}
	return min(max(from, ends.Start), ends.HighWatermark), nil
}

// read returns a page of records that match, from an offset on, and the offset after those that it has looked at.
func (d *Dashboard) read(r *request, t *broker.Topic, partition int32, from int64, only filter) (rows []recordRow, next int64, err error) {
	next = from
	for range maxReads {
		fetched, err := t.Read(r.Context(), partition, next, readBytes)
		if err != nil {
			return rows, next, err
		}
		batches, err := topic.SplitBatches(bytes.Join(fetched.Data, nil))
		if err != nil {
			return rows, next, err
		}
		before := next
		for _, batch := range batches {
			full, err := d.readBatch(r, batch, from, only, &rows)
			if err != nil {
				return rows, next, err
			}
			if full {
				return rows, rows[pageSize-1].Offset + 1, nil
			}
			next = batch.Next()
		}
		if next = max(next, fetched.Next); next == before {
			break
		}
	}
	return rows, next, nil
}

// readBatch adds the records of a batch that match, from an offset on, until the page is full.
func (d *Dashboard) readBatch(r *request, batch topic.Batch, from int64, only filter, rows *[]recordRow) (full bool, err error) {
	if batch.Control() {
		return false, nil
	}
	err = d.options.Topics.Unpacker().Unpack(r.Context(), batch.Compression(), batch[topic.RecordsAt:], func(data []byte) error {
		reader := topic.NewRecordReader(batch, data)
		for len(*rows) < pageSize && reader.Next() {
			if record := &reader.Record; record.Offset >= from && only.matches(record) {
				*rows = append(*rows, showRecord(record))
			}
		}
		return reader.Err
	})
	return len(*rows) == pageSize, err
}

func showRecord(record *topic.Record) recordRow {
	at := time.UnixMilli(record.Timestamp)
	row := recordRow{Offset: record.Offset, Time: clock(at), at: at, Key: show(record.Key), Value: show(record.Value)}
	for i, h := range record.Headers {
		if i == maxHeaders {
			row.MoreHeaders = len(record.Headers) - maxHeaders
			break
		}
		row.Headers = append(row.Headers, headerRow{show([]byte(h.Key)).Text, show(h.Value)})
	}
	return row
}
