package couch

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/osierdb/osier"
)

// dbSettings are what a database remembers for CouchDB's clients. They are a
// document of a collection of the database's own.
type dbSettings struct {
	Q                int          `json:"q"`
	N                int          `json:"n"`
	PurgedInfosLimit int          `json:"purged_infos_limit"`
	PurgeSeq         uint64       `json:"purge_seq"`
	PurgedInfos      []purgedInfo `json:"purged_infos,omitempty"`
}

// purgedInfo is a purge that was carried out.
type purgedInfo struct {
	ID   string   `json:"id"`
	Revs []string `json:"revs"`
}

const defaultPurgedInfos = 1000

// couchCollection keeps dbSettings.
const couchCollection = "_couch"

var dbSettingsDocs = osier.NewCollection[dbSettings](couchCollection)

const dbSettingsID = "settings"

func newDBSettings() *dbSettings {
	return &dbSettings{Q: defaultShards, N: 1, PurgedInfosLimit: defaultPurgedInfos}
}

// loadDBSettings reads a database's settings; those of a database that was not
// made through this door are the default ones.
func loadDBSettings(ctx context.Context, db *osier.DB) (*dbSettings, error) {
	doc, err := dbSettingsDocs.Get(ctx, db, dbSettingsID)
	switch osier.KindOf(err) {
	case osier.KindNotFound, osier.KindDeleted:
		if err != nil {
			return newDBSettings(), nil
		}
	}
	return &doc.Value, err
}

// plain reports whether s are the settings of a database that has none.
func (s *dbSettings) plain() bool {
	return s.Q == defaultShards && s.N == 1 && s.PurgedInfosLimit == defaultPurgedInfos && s.PurgeSeq == 0
}

func (s *dbSettings) save(ctx context.Context, db *osier.DB) error {
	_, err := dbSettingsDocs.Upsert(ctx, db, dbSettingsID, *s)
	return err
}

// changeDBSettings reads the settings, changes them and writes them back.
func changeDBSettings(ctx context.Context, db *osier.DB, change func(*dbSettings)) error {
	return db.Update(ctx, func(tx *osier.Tx) error {
		doc, err := dbSettingsDocs.Get(ctx, tx, dbSettingsID)
		s := doc.Value
		if err != nil {
			if k := osier.KindOf(err); k != osier.KindNotFound && k != osier.KindDeleted {
				return err
			}
			s = *newDBSettings()
		}
		change(&s)
		_, err = dbSettingsDocs.Upsert(ctx, tx, dbSettingsID, s)
		return err
	})
}

// purgedText writes the purges that are remembered.
func (s *dbSettings) purgedText() ([]byte, error) {
	infos := slices.Clone(s.PurgedInfos)
	if infos == nil {
		infos = []purgedInfo{}
	}
	return json.Marshal(struct {
		PurgedInfos []purgedInfo `json:"purged_infos"`
	}{infos})
}
